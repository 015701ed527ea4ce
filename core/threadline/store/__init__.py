"""How threadline keeps things: the protocol, and the embedded store."""

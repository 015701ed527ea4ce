"""What arrives: sockets, who is heard and where, and what belongs to a message."""

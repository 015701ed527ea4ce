"""What a channel declares, and what its routes and handlers are given."""

"""Setting a bot up: its manifest, what is wrong with it, and deliveries for trying it out."""

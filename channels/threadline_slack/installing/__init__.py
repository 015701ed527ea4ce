"""Many workspaces: who installed the app, their tokens, and the way there."""

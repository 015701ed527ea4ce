"""For tests of what talks to GitHub."""

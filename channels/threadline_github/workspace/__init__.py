"""The code of a pull request: its clone, its working folder, its diff, and what is told of it."""

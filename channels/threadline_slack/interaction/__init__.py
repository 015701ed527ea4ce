"""What people press, choose, submit and command, and what it leads to."""

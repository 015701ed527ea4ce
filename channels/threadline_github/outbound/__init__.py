"""What goes to GitHub: comments, reviews, checks and labels."""

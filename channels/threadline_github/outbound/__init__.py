"""What people see: comments, reviews, check runs, labels."""

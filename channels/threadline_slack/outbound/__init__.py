"""What people see: answers, statuses, files, reactions."""

"""What comes from GitHub: webhooks, what they mean, and which conversation they belong to."""

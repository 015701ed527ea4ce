"""What a delivery does to a conversation: admission, turns, steering, stops, recovery."""

"""What a resolved scenario says: its policies, overrides, keys in words, and chance."""

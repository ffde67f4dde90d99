"""Floor 1, pure decisions: batch size, power limit, scheduling, placement and model zoo."""

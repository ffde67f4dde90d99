"""What bandits cost while they learn."""

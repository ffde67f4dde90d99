"""What the `zoo` commands do."""

"""The work of the `zoo` commands."""

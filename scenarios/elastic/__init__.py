"""The work of the `elastic` commands."""

"""From text to columns, for all formats."""

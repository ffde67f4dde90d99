"""Reading, comparing and exporting results."""

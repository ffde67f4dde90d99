"""Studies, comparisons and timelines of results."""

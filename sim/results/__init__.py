"""What a run leaves: tables, metrics, timeline, statistics."""

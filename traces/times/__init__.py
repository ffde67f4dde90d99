"""Times of logs: zones, and the instant that second 0 of a trace is."""

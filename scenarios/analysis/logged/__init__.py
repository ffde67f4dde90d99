"""What a log recorded of waits and load, and that of runs beside it."""

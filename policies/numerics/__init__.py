"""Numbers: functions and distributions that are the same on all processors."""

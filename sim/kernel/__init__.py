"""What every engine stands on: event loop, random streams, signals, journal, rows."""

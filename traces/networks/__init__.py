"""Networks of a recorded space: checks of their tables, and graphs that cells define."""

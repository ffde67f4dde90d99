"""What a run records: attempts, decisions and changes of power, in rows of numbers."""

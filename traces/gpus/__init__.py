"""GPU types: their power limits, and power and speed under a limit."""

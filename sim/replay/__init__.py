"""The backend of the simulator: attempts are replayed from recorded profiles."""

"""The world: jobs, environment, and the backend that replays."""

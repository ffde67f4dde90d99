"""The world: cluster, jobs, clock, and the backend that replays."""

"""Live runs: the world's clock, the backend that starts trainings, and how they are talked to."""

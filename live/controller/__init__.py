"""Live runs: the environment, the backend that starts trainings, and how they are talked to."""

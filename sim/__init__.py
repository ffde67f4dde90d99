"""Floor 3, the world: cluster, jobs, clock, replay backend, metrics, results and report."""

"""Floor 5, the top: scenario files, their schema, sweeps and the command line."""

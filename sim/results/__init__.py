"""Results of runs: tables, metrics, timeline, statistics, and the folder that holds them."""

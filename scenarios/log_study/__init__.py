"""A study of a cluster from its log: import, scenario, runs, page."""

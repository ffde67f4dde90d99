"""Execution of scenarios: simulated, live, or as a search."""

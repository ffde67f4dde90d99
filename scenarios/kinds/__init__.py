"""The kinds of workload: one room each."""

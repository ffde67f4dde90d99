"""Inputs of each kind of workload."""

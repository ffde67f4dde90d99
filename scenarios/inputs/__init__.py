"""Inputs of runs: jobs, profiles, clusters, models."""

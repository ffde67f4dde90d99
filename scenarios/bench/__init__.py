"""Scenarios against committed baselines."""

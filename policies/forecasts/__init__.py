"""Forecasts of signals; one file per forecast."""

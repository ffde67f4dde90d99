"""Signals of live runs: values that arrive during the run."""

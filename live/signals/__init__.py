"""Signals of live runs: values that arrive while the run goes on."""

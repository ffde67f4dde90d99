"""Traces on disk, by name."""

"""Timelines of runs for trace viewers."""

"""Synthetic traces and fits."""

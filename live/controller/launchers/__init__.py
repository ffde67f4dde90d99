"""Launchers of training processes."""

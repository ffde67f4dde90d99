"""Graphs of models in a trace."""

"""Logs of the power of GPUs: spans of known power, and what jobs drew by them."""

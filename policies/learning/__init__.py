"""Beliefs that policies learn from outcomes, and choices by them."""

"""Prices and carbon intensities of electricity over time, and what energy costs under them."""

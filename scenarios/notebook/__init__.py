"""Results in Python and notebooks: displays, plots, frames and rows."""

"""A scenario at many values of any keys."""

"""Documents of comparisons: results folders, points of a sweep, live runs and simulated ones."""

"""From a scenario file to a checked object."""

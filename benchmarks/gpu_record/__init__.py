"""A record of small trainings on a GPU that is at hand for minutes."""

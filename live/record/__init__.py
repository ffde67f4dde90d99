"""Recording of profiles from real trainings."""

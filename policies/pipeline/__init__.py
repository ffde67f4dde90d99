"""Pipeline-parallel training: schedules, executed clock plans, frontiers of time and energy."""

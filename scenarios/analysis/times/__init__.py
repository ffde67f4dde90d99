"""Who pays with time: wait and run of jobs by size, queue and user."""

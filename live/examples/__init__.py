"""Small trainings on generated data: to try a live run, and to start a script of one's own from."""

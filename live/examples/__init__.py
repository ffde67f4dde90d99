"""Small trainings on generated data, to try live runs and as templates for scripts."""

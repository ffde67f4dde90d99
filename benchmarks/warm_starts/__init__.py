"""Records what parents save real trainings, and fits what is expected of them."""

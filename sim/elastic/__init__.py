"""Elastic jobs: trainings that go on when they gain or lose nodes."""

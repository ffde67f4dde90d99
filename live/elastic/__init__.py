"""Elastic trainings on this host: workers come and go, and a policy of `Replan` decides."""

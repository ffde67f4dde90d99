"""Elastic jobs on the page: sentences, and bars of their time, energy and rent."""

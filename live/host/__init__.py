"""The host: its clock, its processes, the folders of its user."""

"""The host: its clock, the identity of its processes, failures of scripts."""

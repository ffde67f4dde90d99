"""Searches for architectures: their spaces, and how they propose the next network."""

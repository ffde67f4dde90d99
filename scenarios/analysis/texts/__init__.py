"""Sentences about waits and losses, shared by terminal and page."""

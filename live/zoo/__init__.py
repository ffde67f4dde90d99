"""The model zoo on disk."""

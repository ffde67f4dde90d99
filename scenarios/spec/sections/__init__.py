"""The sections of scenario files."""

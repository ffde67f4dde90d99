"""What no policy can fall below."""

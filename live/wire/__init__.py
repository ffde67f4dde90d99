"""Messages between sessions and the controller of a live run."""

"""From text to columns: what all formats share."""

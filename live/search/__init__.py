"""Architecture search that trains for real."""

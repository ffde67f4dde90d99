"""Reports on a trace."""

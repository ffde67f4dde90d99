"""The cluster: its nodes, which of their GPUs are free, and what would be without some jobs."""

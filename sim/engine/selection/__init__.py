"""What `Select` is asked about: what fits, and the queues of a cluster."""

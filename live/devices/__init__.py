"""What measures energy and takes power limits: GPUs, CPU packages, and a synthetic GPU."""

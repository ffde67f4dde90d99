"""Floor 4, real GPUs: the live backend comes here."""

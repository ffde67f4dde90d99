"""Weight transfer from a trained model to a new architecture."""

"""The model zoo's decisions: which trained model is like a new one, and which models to keep."""

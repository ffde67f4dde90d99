"""Similarity of models: which trained model is the best parent of a new one."""

"""The session in a training script, and what decides for it."""

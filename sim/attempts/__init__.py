"""Attempts: their life, and how policies are asked about them; no clock and no SimPy."""

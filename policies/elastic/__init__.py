"""Shapes of elastic jobs: pipeline templates, instantiation, reconfiguration, morphing."""

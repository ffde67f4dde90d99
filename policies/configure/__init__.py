"""Configure: how shall this job run?"""

"""Policies of `Configure`: how does a job run?"""

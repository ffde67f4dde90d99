"""Policies of `Tune`: which knobs of a running job change?"""

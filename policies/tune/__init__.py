"""Tune: which knobs of something that runs change now?"""

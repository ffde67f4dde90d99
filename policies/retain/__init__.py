"""Policies of `Retain`: which models does a bounded store admit and evict?"""

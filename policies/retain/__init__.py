"""Retain: what does a bounded store admit and evict?"""

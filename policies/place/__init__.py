"""Policies of `Place`: on which GPUs does a job run?"""

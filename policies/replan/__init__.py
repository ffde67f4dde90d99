"""Policies of `Replan`: what shape does an elastic job take after it gained or lost nodes?"""

"""Policies of `Select`: which waiting jobs start, and which running jobs do they preempt?"""

"""Stateful policies to start from, one a decision point; `wattkeeper policy new` copies them.

They are not registered: files of policies are, where a scenario names them.
"""

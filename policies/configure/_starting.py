"""Configurations of policies that choose the parent only."""

from wattkeeper.policies.protocols import Configuration, Start


def start_from(start: Start, parent: str | None, query_s: float = 0.0) -> Configuration:
    """The default batch size with a parent's id; None: start from scratch."""
    return Configuration(start.options.default_batch_size, parent=parent, query_s=query_s)

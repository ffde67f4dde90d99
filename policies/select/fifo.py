"""First in, first out."""

from typing import Literal

from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.scheduling.queueing import Fifo


class FifoConfig(PolicyConfig):
    """First in, first out, in order of submission; only the head of the queue may start."""

    kind: Literal["fifo"] = "fifo"
    policy = Fifo
    plain = "in order of submission"

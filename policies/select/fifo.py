"""First in, first out."""

from typing import ClassVar, Literal

from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.scheduling.queueing import Fifo


class FifoConfig(PolicyConfig):
    """First in, first out, in order of submission; only the head of the queue may start."""

    point: ClassVar[Point] = "select"
    kind: Literal["fifo"] = "fifo"
    policy = Fifo

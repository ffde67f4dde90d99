"""The first job that fits."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.select._queueing import Fjf


class FjfConfig(PolicyConfig):
    """The first job that fits, in the order of submission; those that do not fit are passed over.

    The Alibaba PAI simulator (Weng et al., NSDI '22) calls this FIFO; Tiresias (Gu et al., NSDI
    '19) has it as `fjf`, first job that fits.
    """

    point: ClassVar[Point] = "select"
    kind: Literal["fjf"] = "fjf"

    def build(self) -> Fjf:
        """A new policy."""
        return Fjf()

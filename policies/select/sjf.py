"""Shortest job first."""

from collections.abc import Mapping
from typing import Literal

from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.scheduling.queueing import Sjf


class SjfConfig(PolicyConfig):
    """The shortest job that fits, by recorded run time, without preemption.

    SJF as in the Alibaba PAI simulator (Weng et al., NSDI '22): the run time is known exactly.
    """

    kind: Literal["sjf"] = "sjf"
    policy = Sjf
    plain = "the shortest job first"

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """The recorded run time."""
        return {"duration_s": "choose a policy that does not need it"}

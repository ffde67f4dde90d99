"""The first job that fits."""

from typing import Literal

from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.scheduling.queueing import Fjf


class FjfConfig(PolicyConfig):
    """First job that fits, in order of submission; jobs that do not fit are skipped.

    The Alibaba PAI simulator (Weng et al., NSDI '22) calls this FIFO; Tiresias (Gu et al., NSDI
    '19) has it as `fjf`, first job that fits.
    """

    kind: Literal["fjf"] = "fjf"
    policy = Fjf
    plain = "the first job that fits"

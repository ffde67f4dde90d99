"""First fit."""

from typing import Literal

from wattkeeper.policies.place._first_fit import FirstFit
from wattkeeper.policies.registry import PolicyConfig


class FirstFitConfig(PolicyConfig):
    """First fit: the first node that holds the job, else the first nodes that together hold it.

    A job that asks for fractions of GPUs takes the first node where it fits on GPUs that are
    already shared, else the first node where it fits on unshared ones. A job that no single node
    can hold is distributed over nodes of the first GPU type with enough GPUs.
    """

    kind: Literal["first-fit"] = "first-fit"
    policy = FirstFit
    plain = "the first node that fits"

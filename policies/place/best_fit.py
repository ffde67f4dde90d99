"""Best fit."""

from typing import Literal

from wattkeeper.policies.place._tightest import BestFit
from wattkeeper.policies.registry import PolicyConfig


class BestFitConfig(PolicyConfig):
    """Best fit: the node with the fewest free GPUs, and the fullest GPUs for fractions.

    Ties go to the first GPU type, then to the first node. A job that no single node can hold
    takes as few nodes as possible: whole emptiest nodes, and best fit for the rest; of several GPU
    types the one that needs the fewest nodes. A job that asks for fractions of GPUs takes the
    fitting ones with the fewest free thousandths, on all nodes of a type.
    """

    kind: Literal["best-fit"] = "best-fit"
    policy = BestFit
    plain = "the fullest node that fits"

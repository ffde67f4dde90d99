"""Scales the learning rate of a script with the batch size that was chosen."""

import math
from typing import Literal

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.suggestions import did_you_mean

Rule = Literal["linear", "square-root", "none"]
"""`linear`: k times the batch size, k times the rate (Goyal et al. 2017, section 2.1; for SGD).
`square-root`: its square root (Krizhevsky 2014, section 5; Malladi et al., NeurIPS '22, for Adam
and RMSprop). `none`: it stays."""


def scale_learning_rate(rate: float, batch_size: int, default_batch_size: int, rule: Rule) -> float:
    """The learning rate of a batch size.

    `rate` is that of the default batch size; batch sizes are in samples.

    Raises:
        InputError: If there is no such rule, or a batch size is not above 0.
    """
    if min(batch_size, default_batch_size) <= 0:
        raise InputError(
            f"found batch sizes of {batch_size} and {default_batch_size}; must be above 0"
        )
    ratio = batch_size / default_batch_size
    factors = {"linear": ratio, "square-root": math.sqrt(ratio), "none": 1.0}
    if rule not in factors:
        meant = did_you_mean(rule, factors)
        raise InputError(
            f"no rule {rule!r} for learning rates{meant}; there is {', '.join(factors)}"
        )
    return rate * factors[rule]

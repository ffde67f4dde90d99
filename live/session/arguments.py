"""The arguments of a session, and the learning rates and power limits that follow from them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.policies.profile import MOST_LIMITS
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.traces.files.names import explain_label

if TYPE_CHECKING:
    from wattkeeper.policies.registry import PolicyConfig

Rule = Literal["linear", "square-root", "none"]
"""`linear`: k times the batch size, k times the rate (Goyal et al. 2017, section 2.1; for SGD).
`square-root`: its square root (Krizhevsky 2014, section 5; Malladi et al., NeurIPS '22, for Adam
and RMSprop). `none`: it stays."""

STEP_W: Final = 25.0
"""Between the power limits that are tried (Zeus, NSDI '23, section 6.1)."""


class SessionArguments(NamedTuple):
    """The arguments of `wattkeeper.live.session.session.Session`."""

    job: str
    batch_sizes: tuple[int, ...]
    default_batch_size: int
    max_epochs: int
    target: float | None
    higher_is_better: bool
    eta: float
    configure: str | PolicyConfig
    tune: str | PolicyConfig | None
    power_limits_w: tuple[float, ...] | None
    store: str | Path | None
    lease_s: float
    samples_per_epoch: int | None = None

    def check(self) -> None:
        """Check the arguments, all at once.

        Raises:
            InputError: With a problem for each wrong one.
        """
        sizes = ", ".join(map(str, self.batch_sizes)) or "none"
        name = explain_label(self.job, "job")
        target = 0.0 if self.target is None else self.target
        wrong = [
            (not self.job.strip(), "found no name; give the job one, job='nightly-cnn'"),
            (bool(self.job and name), name),
            (
                not self.batch_sizes or min(self.batch_sizes) < 1,
                f"found the batch sizes {sizes}; at least one is needed, and all above 0",
            ),
            (
                self.default_batch_size not in self.batch_sizes,
                f"found the default batch size {self.default_batch_size}; allowed: {sizes}",
            ),
            (self.max_epochs < 1, f"found max_epochs={self.max_epochs}; must be at least 1"),
            (not math.isfinite(target), f"found the target {self.target}; must be finite"),
            (not 0 <= self.eta <= 1, f"found eta={self.eta}; must be from 0 (time) to 1 (energy)"),
            (not 0 < self.lease_s < math.inf, f"found lease_s={self.lease_s}; must be above 0"),
            (
                self.power_limits_w is not None and not all(w > 0 for w in self.power_limits_w),
                f"found power_limits_w={self.power_limits_w}; all must be above 0",
            ),
            (
                len(self.power_limits_w or ()) > MOST_LIMITS,
                f"found {len(self.power_limits_w or ()):,} power limits (power_limits_w); at most "
                f"{MOST_LIMITS:,}",
            ),
            (
                self.samples_per_epoch is not None and self.samples_per_epoch < 1,
                f"found samples_per_epoch={self.samples_per_epoch}; must be at least 1",
            ),
        ]
        if problems := [Problem(message) for applies, message in wrong if applies]:
            raise InputError(problems)


def power_limit_steps(lowest_w: float, highest_w: float) -> tuple[float, ...]:
    """The power limits that are tried, W, ascending: the highest, and what is whole steps below.

    Raises:
        InputError: If they are more than `MOST_LIMITS`.
    """
    count = int((highest_w - lowest_w) // STEP_W)
    if count >= MOST_LIMITS:
        raise InputError(
            f"{count + 1:,} power limits from {lowest_w:g} to {highest_w:g} W in steps of "
            f"{STEP_W:g} W would be measured; at most {MOST_LIMITS:,}: name those that shall be"
        )
    return tuple(highest_w - STEP_W * below for below in range(count, -1, -1))


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

"""What is decided of an attempt: its configuration, its power limit, and what came of them."""

from __future__ import annotations

from wattkeeper.policies.protocols import Configuration, Outcome, Start


class Decided:
    """An attempt whose configuration is chosen; immutable.

    It is `Untuned` until its power limit is chosen, and `Tuned` then.

    Attributes:
        start: The view that `Configure` was shown.
        configuration: What it chose.
    """

    def __init__(self, start: Start, configuration: Configuration) -> None:
        self.start = start
        self.configuration = configuration

    @property
    def batch_size(self) -> int:
        """The batch size that was chosen."""
        return self.configuration.batch_size

    @property
    def max_power_w(self) -> float:
        """The largest power limit of all its GPUs, W; it weighs time in the cost."""
        options = self.start.options
        return options.max_power_w * options.gpus


class Untuned(Decided):
    """An attempt whose power limits are measured before `Tune` chooses one.

    Attributes:
        profile_w: The power limits to be measured, W, in this order.
    """

    def __init__(
        self, start: Start, configuration: Configuration, profile_w: tuple[float, ...]
    ) -> None:
        super().__init__(start, configuration)
        self.profile_w = profile_w

    def at_highest_limit(self) -> Tuned:
        """The attempt without profiling: GPUs run at their highest limit unless another is set."""
        highest_w = self.start.options.limits(self.batch_size)[-1]
        return Tuned(self.start, self.configuration, highest_w, False)


class Tuned(Decided):
    """An attempt whose power limit is chosen.

    Attributes:
        power_limit_w: The power limit of each GPU, W.
        profiled: Whether the power limits were measured.
    """

    def __init__(
        self, start: Start, configuration: Configuration, power_limit_w: float, profiled: bool
    ) -> None:
        super().__init__(start, configuration)
        self.power_limit_w = power_limit_w
        self.profiled = profiled

    def outcome(
        self, epochs: int, time_s: float, energy_j: float, cost: float, reached: bool
    ) -> Outcome:
        """What policies learn of the attempt once it ended; arguments as of `Outcome`."""
        return Outcome(self.start, self.batch_size, self.power_limit_w, epochs, time_s, energy_j,
                       cost, reached)  # fmt: skip


Decision = Untuned | Tuned

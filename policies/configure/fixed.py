"""A fixed batch size."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Options, Start
from wattkeeper.policies.registry import PolicyConfig


class Fixed(Configure):
    """See `FixedConfig`."""

    def __init__(self, config: FixedConfig) -> None:
        self.batch_size = config.batch_size

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The fixed batch size."""
        return Configuration(self.batch_size or start.options.default_batch_size)


class FixedConfig(PolicyConfig):
    """All attempts run with the same batch size, without a cost bound."""

    kind: Literal["fixed"] = "fixed"
    policy = Fixed
    batch_size: PositiveInt | None = None
    """Samples; by default the workload's default batch size."""

    def check(self, options: Options) -> None:
        """Check that the batch size was profiled."""
        if self.batch_size is not None:
            options.check_batch_size(self.batch_size, "all jobs")

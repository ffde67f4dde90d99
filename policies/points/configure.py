"""The decision point `Configure`: how a job runs."""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import mypyc_attr

from wattkeeper.policies.points.policy import Context, Policy
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Configuration, Start


@mypyc_attr(allow_interpreted_subclasses=True)
class Configure(Policy):
    """How does this job run? Asked once before each attempt."""

    @abstractmethod
    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Choose batch size, cost bound, parent, and power limit if the config has `sets_power`."""
        raise NotImplementedError

    def on_loss(self, ctx: Context, start: Start) -> None:
        """Called when an attempt was lost to an accident and is not repeated: it has no outcome."""

    def tuner(self) -> Tune:
        """The `Tune` policy that shares the state of this one, if the config says `tunes`.

        This one saves the state of both.
        """
        raise NotImplementedError

"""The decision point `Tune`: which knobs of a running job change."""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import mypyc_attr

from wattkeeper.policies.points.policy import Context, Policy
from wattkeeper.policies.points.views import Knobs, Running


@mypyc_attr(allow_interpreted_subclasses=True)
class Tune(Policy):
    """Which knobs change now? Asked at the moments that the policy's config names (`moments`)."""

    @abstractmethod
    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """Choose knobs; None changes nothing.

        At the start, the answer is a power limit, or a request to profile some first.
        """
        raise NotImplementedError

"""No parent: the baseline of warm starts."""

from typing import ClassVar, Literal

from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.policies.registry import PolicyConfig


class Scratch(Configure):
    """See `NoneConfig`."""

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Start from scratch."""
        return start.inherit(None)


class NoneConfig(PolicyConfig):
    """All models are trained from scratch, with their default batch size."""

    sets_parent: ClassVar[bool] = True
    kind: Literal["none"] = "none"
    policy = Scratch
    plain = "training from scratch"

"""No parent: what warm starts are compared with."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.configure._starting import start_from
from wattkeeper.policies.protocols import Configuration, Configure, Context, Start
from wattkeeper.policies.registry import Point, PolicyConfig


class NoneConfig(PolicyConfig):
    """Every model is trained from scratch, with its default batch size."""

    point: ClassVar[Point] = "configure"
    sets_parent: ClassVar[bool] = True
    kind: Literal["none"] = "none"

    def build(self) -> Scratch:
        """A new policy."""
        return Scratch()


class Scratch(Configure):
    """See `NoneConfig`."""

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """No parent."""
        return start_from(start, None)

"""A random parent."""

from typing import ClassVar, Literal

from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.policies.registry import PolicyConfig


class RandomParent(Configure):
    """See `RandomParentConfig`."""

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Draw a model of the task; start from scratch if there is none."""
        child = ctx.zoo.child(start.job)
        if child is None:
            return start.inherit(None)
        peers = [
            model.model_id
            for model in ctx.zoo.models()
            if model.usable and model.task == child.task
        ]
        if not peers:
            return start.inherit(None)
        return start.inherit(peers[ctx.rng("parent").integers(len(peers))])


class RandomParentConfig(PolicyConfig):
    """Starts from a uniformly drawn stored model of the same task.

    The baseline that shows the value of similarity.
    """

    sets_parent: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    kind: Literal["random-parent"] = "random-parent"
    policy = RandomParent
    plain = "parents at random"

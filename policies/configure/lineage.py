"""The parent is the model from which the job's model was mutated."""

from typing import ClassVar, Literal

from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.policies.registry import PolicyConfig


class Lineage(Configure):
    """See `LineageConfig`."""

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The most accurate stored model of that name and task; ties go to the first."""
        child = ctx.zoo.child(start.job)
        if child is None or child.mutated_from is None:
            return start.inherit(None)
        origin = child.mutated_from, child.task
        stored = [
            model
            for model in ctx.zoo.models()
            if model.usable and (model.name, model.task) == origin
        ]
        best = max(stored, key=lambda model: model.accuracy, default=None)
        return start.inherit(best.model_id if best else None)


class LineageConfig(PolicyConfig):
    """Starts from the model that the job's model was mutated from, if the zoo still has it.

    As Retiarii (Q. Zhang et al., OSDI '20) shares weights between a model and its
    mutations. Other models, and those whose origin is not in the zoo, start from scratch.
    """

    sets_parent: ClassVar[bool] = True
    kind: Literal["lineage"] = "lineage"
    policy = Lineage
    plain = "the parent of each mutation"

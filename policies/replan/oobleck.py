"""Oobleck (SOSP '23): pipelines of several sizes, so that survivors of a loss have all layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from wattkeeper.policies.elastic.pipeline_plan import PipelinePlan
from wattkeeper.policies.elastic.reconfiguration import (
    Pipelines,
    assign_layers,
    plan_transition,
    reconfigure,
)
from wattkeeper.policies.elastic.templates import PipelineTemplate
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.replan import ElasticTask, ElasticView, Reshape, Shape, ShapeStage
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.replan._joining import Join, JoiningReplan


class Oobleck(JoiningReplan):
    """See `OobleckConfig`."""

    def __init__(self, config: OobleckConfig) -> None:
        super().__init__(config.join)
        self._reads_until_s: dict[str, float] = {}

    def pause_s(self, task: ElasticTask, nodes: int) -> float:
        """The time to take another shape: survivors have the state."""
        return task.reconfigure_s

    def shape(self, task: ElasticTask, nodes: int, mean_loss_s: float) -> Shape:
        """Each step is committed at once."""
        return Shape(nodes, task.rates[nodes])

    def replan(self, ctx: Context, view: ElasticView) -> Reshape | None:
        """All nodes, in pipelines where the job has templates; spare ones as `join` says."""
        answer = super().replan(ctx, view)
        if answer is None or view.task.plan is None or view.moment == "gained":
            return answer
        answer = _lay_out(view.task.plan, view, answer)
        if view.moment == "pause":
            return answer
        if ctx.now_s < self._reads_until_s.get(view.job_id, 0.0):
            restart_s = view.task.restart_s[view.nodes]
            answer = answer._replace(pause_s=restart_s, from_storage=True)
        if answer.from_storage:
            self._reads_until_s[view.job_id] = ctx.now_s + answer.pause_s
        return answer

    def state_dict(self) -> dict[str, Any]:
        """Until when jobs read their state from storage, s."""
        return dict(self._reads_until_s)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._reads_until_s = dict(state)


def _lay_out(plan: PipelinePlan, view: ElasticView, answer: Reshape) -> Reshape:
    """The answer with pipelines: those that a loss leaves, or new ones.

    Nodes that came or idle lead to new ones, and so does a loss that leaves some without a
    template. Where nobody holds a layer any more, all nodes restart from storage. A loss in a pause
    finds layers where they are after it.
    """
    task = view.task
    before = _nodes_of(view.shape)
    known = {node for pipeline in before for node in pipeline}
    gone = sorted(known.difference(view.held))
    pipelines: Pipelines = ()
    if view.moment != "boundary" and known.issuperset(view.held):
        pipelines = reconfigure(before, gone, plan.least)
    step_s = plan.step_s(pipelines)
    if math.isinf(step_s):
        pipelines = plan.form(view.held)
        step_s = plan.step_s(pipelines)
    if math.isinf(step_s):
        return answer._replace(shape=answer.shape._replace(rate=0.0))
    stages = tuple(tuple(_stages(pipeline, plan.templates)) for pipeline in pipelines)
    shape = answer.shape._replace(rate=task.batch / step_s, pipelines=stages)
    if not before:
        return answer._replace(shape=shape)
    moved = plan_transition(
        assign_layers(before, plan.templates),
        assign_layers(pipelines, plan.templates),
        gone,
        plan.layer_bytes or (0,) * plan.layers,
    )
    copied_bytes = float(moved.copied_bytes) if plan.layer_bytes else math.nan
    if any(move.source is None for move in moved.moves):
        return Reshape(shape, task.restart_s[view.nodes], True, copied_bytes)
    return Reshape(shape, answer.pause_s, False, copied_bytes)


def _nodes_of(shape: Shape | None) -> Pipelines:
    """The nodes of each pipeline, in the order of its stages."""
    if shape is None:
        return ()
    return tuple(
        tuple(dict.fromkeys(node for stage in pipeline for node in stage.nodes))
        for pipeline in shape.pipelines
    )


def _stages(pipeline: Sequence[int], templates: Sequence[PipelineTemplate]) -> Iterator[ShapeStage]:
    """The stages of a pipeline, by the template of as many nodes."""
    template = next(each for each in templates if each.nodes == len(pipeline))
    gpus = 0
    for stage in template.stages:
        yield ShapeStage(stage.first, stage.end, (pipeline[gpus // template.gpus_per_node],))
        gpus += stage.gpus


class OobleckConfig(PolicyConfig):
    """Pipelines that keep a copy of each layer: a loss costs the step under way and a short pause.

    Oobleck (SOSP '23). Its published engine takes up nodes that came at the next loss. Where a job
    states costs of layers (`pipelines`), its pipelines are those that losses leave; else it trains
    at the rate of its number of nodes.
    """

    kind: Literal["oobleck"] = "oobleck"
    policy = Oobleck
    rates_of: ClassVar[str] = "oobleck"
    join: Join = "loss"
    """When nodes that came are taken up: at the next `loss`, `now` (at the end of the step), or now
    if it `pays`: if they add more until the next loss, as expected, than the pause costs."""

"""Bamboo (NSDI '23): each node also guards the next stage of its pipeline, and takes it over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from wattkeeper.policies.planning.checkpoint_intervals import daly_interval_s
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.replan import (
    ElasticTask,
    ElasticView,
    Replan,
    Reshape,
    Shape,
    ShapeStage,
)
from wattkeeper.policies.registry import PolicyConfig

SLOWDOWN: Final = 1.5
"""Time of a step while a node trains two stages over that before, as in Bamboo's artifact."""

MOST_DOUBLED: Final = 0.05
"""Above this share of nodes of taken-over stages, pipelines are formed anew (its artifact)."""

REDUNDANT_SHARE: Final = 0.8029
"""Share of a step in which nodes compute the next stage, as Oobleck's artifact (SOSP '23) has it of
Bamboo, for all models."""

Ring = tuple[ShapeStage, ...]
"""A pipeline; its first stage follows the last one. The first node of a stage trains it."""


class JobState(NamedTuple):
    """What the policy knows of a job.

    Attributes:
        since_s: When it first formed, s.
        fatal: Losses that cost it what was not committed.
        pauses_until_s: When its last pause ends, s.
    """

    since_s: float
    fatal: int = 0
    pauses_until_s: float = 0.0


class Bamboo(Replan):
    """See `BambooConfig`."""

    def __init__(self, config: BambooConfig) -> None:
        self._depth, self._every_steps = config.depth, config.every_steps
        self._redundant_share = config.redundant_share
        self._jobs: dict[str, JobState] = {}

    def replan(self, ctx: Context, view: ElasticView) -> Reshape | None:
        """Guards take stages over; pipelines are formed anew where the rule of Bamboo says so."""
        now_s = ctx.now_s
        state = self._jobs.get(view.job_id) or JobState(now_s)
        rings = () if view.shape is None else view.shape.pipelines
        if view.moment == "gained":
            nodes = view.nodes + view.spare
            if not self._meets(rings, nodes, view.task):
                return None
            return Reshape(Shape(nodes, view.task.rates[nodes]), view.task.reconfigure_s)
        survives = view.shape is not None and bool(rings) and view.shape.survives_on(view.held)
        if view.moment == "lost" and survives and now_s >= state.pauses_until_s:
            return self._take_over(view)
        state = state._replace(fatal=state.fatal + (view.moment == "lost" and not survives))
        answer = self._form(view, survives and view.moment != "start", state, now_s)
        if view.moment != "pause":
            state = state._replace(pauses_until_s=now_s + answer.pause_s)
        self._jobs[view.job_id] = state
        return answer

    def _take_over(self, view: ElasticView) -> Reshape:
        """The shape in which guards train the stages of lost nodes, at once."""
        shape = view.shape
        assert shape is not None
        living = set(view.held)
        rings = tuple(
            tuple(
                [
                    stage._replace(nodes=tuple([node for node in stage.nodes if node in living]))
                    for stage in ring
                ]
            )
            for ring in shape.pipelines
        )
        is_slowed = _doubled(rings) > 0 and _doubled(shape.pipelines) == 0
        rate = shape.rate / SLOWDOWN if is_slowed else shape.rate
        taken = shape._replace(nodes=view.nodes, rate=rate, pipelines=rings)
        return Reshape(taken, 0.0, is_interim=self._meets(rings, view.nodes, view.task))

    def _form(self, view: ElasticView, survives: bool, state: JobState, now_s: float) -> Reshape:
        """New pipelines, of nodes that have the state or that all read it from storage."""
        task, nodes = view.task, view.nodes
        rings = tuple(
            [
                form_ring(view.held[first : first + self._depth])
                for first in range(0, nodes - self._depth + 1, self._depth)
            ]
        )
        rate = task.rates[nodes] if rings else 0.0
        mean_s = (now_s - state.since_s + view.mean_loss_s / nodes) / (state.fatal + 1)
        steps = self._commit_steps(task, nodes, mean_s) if rate else 1
        shape = Shape(
            nodes,
            rate,
            steps,
            task.checkpoint_s,
            pipelines=rings,
            is_redundant=True,
            redundant_share=self._redundant_share,
        )
        if survives:
            return Reshape(shape, task.reconfigure_s)
        return Reshape(shape, task.restart_s[nodes] - task.checkpoint_s, from_storage=True)

    def _commit_steps(self, task: ElasticTask, nodes: int, mean_s: float) -> int:
        """Steps between two checkpoints, given the mean time between fatal losses, s."""
        if isinstance(self._every_steps, int):
            return self._every_steps
        every_s = daly_interval_s(task.checkpoint_s, mean_s)
        return max(1, round(every_s / task.step_s(nodes)))

    def _meets(self, rings: Sequence[Ring], nodes: int, task: ElasticTask) -> bool:
        """Whether pipelines are formed anew, on so many nodes; never where none could train."""
        if nodes < self._depth or not task.rates[nodes]:
            return False
        doubled = _doubled(rings)
        busy = sum(map(len, rings)) - doubled
        waiting = nodes - busy
        return (
            0 < doubled <= waiting
            or 2 * doubled > MOST_DOUBLED * busy
            or nodes // self._depth > len(rings)
        )

    def state_dict(self) -> dict[str, Any]:
        """What it knows of each job."""
        return {job_id: list(state) for job_id, state in self._jobs.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._jobs = {job_id: JobState(*kept) for job_id, kept in state.items()}


def form_ring(nodes: Sequence[int]) -> Ring:
    """A pipeline of nodes, each of which trains a stage and holds the next one, too."""
    return tuple(
        [ShapeStage(place, place + 1, (node, nodes[place - 1])) for place, node in enumerate(nodes)]
    )


def _doubled(rings: Sequence[Ring]) -> int:
    """How many nodes train two stages."""
    trained = [stage.nodes[0] for ring in rings for stage in ring]
    return len(trained) - len(set(trained))


class BambooConfig(PolicyConfig):
    """Each node also guards the next stage of its pipeline: a loss slows training, no more.

    The guards, the time of steps on taken-over stages, and when pipelines are formed anew are those
    of Bamboo's artifact (NSDI '23). Two neighbours lost before that are fatal: all nodes restart
    from a checkpoint in storage. The artifact says neither when checkpoints are written nor what
    they cost; this is ours, with the costs that the job states. Pipelines are not formed anew where
    none could train.
    """

    kind: Literal["bamboo"] = "bamboo"
    policy = Bamboo
    rates_of: ClassVar[str] = "bamboo"
    depth: Annotated[int, Field(ge=2, le=10_000)] = 12
    """Nodes of a pipeline; those that are too few for another one wait."""
    every_steps: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["daly"] = "daly"
    """Steps from one checkpoint to the next; `daly`: as follows from the fatal losses observed so
    far, with one beforehand in the mean time between losses of any node (Daly, FGCS 2006), looked
    at whenever pipelines are formed anew."""
    redundant_share: Annotated[float, Field(ge=0, lt=1)] = REDUNDANT_SHARE
    """Share of the time of a step in which nodes compute the next stage only to guard it, counted
    apart from useful work; by default that of Bamboo in Oobleck's artifact (SOSP '23), for all
    models. Rates include it: it changes no time."""

    @property
    def fewest_nodes(self) -> int:
        """Those of a pipeline."""
        return self.depth

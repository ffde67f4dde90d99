"""Resilience by expected goodput: which mechanism, and when nodes that came are taken up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, get_args

from pydantic import Field, model_validator

from wattkeeper.policies.planning.loss_history import JobHistory
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.replan import ElasticTask, ElasticView, Replan, Reshape, Shape
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.replan._joining import JoiningReplan
from wattkeeper.policies.replan.in_memory import InMemory, InMemoryConfig
from wattkeeper.policies.replan.on_notice import OnNotice, OnNoticeConfig
from wattkeeper.policies.replan.oobleck import Oobleck, OobleckConfig
from wattkeeper.policies.replan.varuna import Varuna, VarunaConfig

LARGEST: Final = 700.0
"""The exponential of a larger number is no float."""

Mechanism = Literal["oobleck", "in-memory", "varuna", "on-notice"]
MECHANISMS: Final[tuple[Mechanism, ...]] = get_args(Mechanism)

SYSTEMS: Final[Mapping[str, str]] = {
    "oobleck": OobleckConfig.rates_of,
    "in-memory": InMemoryConfig.rates_of,
    "varuna": VarunaConfig.rates_of,
    "on-notice": OnNoticeConfig.rates_of,
}
"""The training system at whose rates each mechanism trains."""


class Option(NamedTuple):
    """A mechanism on some nodes.

    Attributes:
        shape: The shape with the highest expected goodput.
        pause_s: Its pause, s.
        goodput: Samples a second, by mean time between losses.
    """

    shape: Shape
    pause_s: float
    goodput: tuple[float, ...]


class Adaptive(Replan):
    """See `AdaptiveConfig`."""

    def __init__(self, config: AdaptiveConfig) -> None:
        policies: dict[str, JoiningReplan] = {
            "oobleck": Oobleck(OobleckConfig()),
            "in-memory": InMemory(InMemoryConfig()),
            "varuna": Varuna(VarunaConfig(every_steps="daly")),
            "on-notice": OnNotice(OnNoticeConfig()),
        }
        self._mechanisms = {str(name): policies[name] for name in config.mechanisms}
        self._histories: dict[str, JobHistory] = {}

    def replan(self, ctx: Context, view: ElasticView) -> Reshape | None:
        """The mechanism with the highest expected goodput, after what changing to it takes."""
        history = self._see(ctx, view)
        if view.moment == "gained":
            return self._offer(view, history)
        nodes, now_s = view.nodes, ctx.now_s
        if view.moment == "pause":
            option = self._option(history.mechanism, view.task, nodes, history)
            return Reshape(option.shape, option.pause_s)
        was_changing = now_s < history.changes_until_s
        restart_s = view.task.restart_s[nodes]
        name = self._choose(view.task, nodes, history, restart_s if was_changing else None)
        option = self._option(name, view.task, nodes, history)
        changes = was_changing or history.mechanism not in ("", name)
        history.mechanism = name
        if changes:
            history.changes_until_s = now_s + restart_s
            return Reshape(option.shape, restart_s, from_storage=True)
        from_storage = self._mechanisms[name].from_storage
        return Reshape(option.shape, option.pause_s, from_storage=from_storage)

    def _see(self, ctx: Context, view: ElasticView) -> JobHistory:
        now_s = ctx.now_s
        history = self._histories.get(view.job_id)
        if history is None:
            longest_s = view.mean_loss_s / view.nodes
            history = JobHistory(longest_s, view.nodes, now_s)
            self._histories[view.job_id] = history
        history.see(view, now_s)
        return history

    def _offer(self, view: ElasticView, history: JobHistory) -> Reshape | None:
        """Whether spare nodes are taken up, or another mechanism is, at the end of the step."""
        task, nodes = view.task, view.nodes + view.spare
        here = self._option(history.mechanism, task, view.nodes, history)
        more = self._option(history.mechanism, task, nodes, history)
        write_s = 0.0 if more.shape.commit_steps == 1 else task.checkpoint_s
        stops_s = more.pause_s + write_s
        spans_s = history.spans_s()
        gains = [
            (after - before) * span_s
            for before, after, span_s in zip(here.goodput, more.goodput, spans_s, strict=True)
        ]
        takes_up = history.belief.expect(gains) > more.shape.rate * stops_s
        name = self._choose(task, nodes, history, stops_s if takes_up else 0.0)
        if name == history.mechanism and not takes_up:
            return None
        chosen = self._option(name, task, nodes, history)
        return Reshape(chosen.shape, chosen.pause_s)

    def _choose(
        self, task: ElasticTask, nodes: int, history: JobHistory, stays_s: float | None
    ) -> str:
        """The mechanism that is expected to train most, at the mean number of nodes so far.

        The job is to last as long again as it has lasted, and a change takes a restart. The first
        choice has no age to go by: the highest expected goodput wins.

        Args:
            task: What is trained.
            nodes: On so many nodes, from now on.
            history: What was seen of the job.
            stays_s: The pause without a change, s; None: that of the present mechanism.
        """
        belief, present = history.belief, history.mechanism
        values: dict[str, float] = {}
        for name in sorted(self._mechanisms, key=lambda each: each != present):
            option = self._option(name, task, history.mean_nodes(task), history)
            if not present:
                values[name] = belief.expect(option.goodput)
                continue
            pause_s = task.restart_s[nodes]
            if name == present:
                own_s = self._option(name, task, nodes, history).pause_s
                pause_s = own_s if stays_s is None else stays_s
            left_s = [
                max(0.0, history.age_s - time_of_pause_s(pause_s, mean_s))
                for mean_s in belief.means_s
            ]
            samples = [rate * time_s for rate, time_s in zip(option.goodput, left_s, strict=True)]
            values[name] = belief.expect(samples)
        return max(values, key=values.__getitem__)

    def _option(self, name: str, task: ElasticTask, nodes: int, history: JobHistory) -> Option:
        """A mechanism on so many nodes, with the best interval of its checkpoints."""
        mechanism, belief = self._mechanisms[name], history.belief
        task = task.trained_by(SYSTEMS[name])
        pause_s = mechanism.pause_s(task, nodes)
        best: Option | None = None
        highest = -math.inf
        shapes = [mechanism.shape(task, nodes, mean_s * nodes) for mean_s in belief.means_s]
        for shape in dict.fromkeys(shapes):
            goodput = tuple(
                [
                    shape_goodput(shape, task, pause_s, mean_s, history.announced_share)
                    for mean_s in belief.means_s
                ]
            )
            expected = belief.expect(goodput)
            if expected > highest:
                best, highest = Option(shape, pause_s, goodput), expected
        assert best is not None
        return best

    def state_dict(self) -> dict[str, Any]:
        """What it saw of each job."""
        return {job_id: history.state_dict() for job_id, history in self._histories.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._histories = {job_id: JobHistory(**kept) for job_id, kept in state.items()}


class AdaptiveConfig(PolicyConfig):
    """The way to be resilient with the highest expected goodput, by the losses seen so far.

    It begins with one, changes to another when that is expected to pay, which takes a restart from
    storage (`restart_s`), and takes up nodes that came when that pays.
    """

    kind: Literal["adaptive"] = "adaptive"
    policy = Adaptive
    mechanisms: Annotated[tuple[Mechanism, ...], Field(min_length=1)] = MECHANISMS
    """The ways to be resilient that the job can be trained with, each as the policy of its name:
    `oobleck`, `in-memory`, `varuna` (at the best interval) and `on-notice`."""

    @property
    def systems(self) -> tuple[str, ...]:
        """The training systems of its mechanisms."""
        return tuple(dict.fromkeys(SYSTEMS[name] for name in self.mechanisms))

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        if len(set(self.mechanisms)) < len(self.mechanisms):
            raise ValueError("mechanisms: each is named once")
        return self


def useful_share(work_s: float, write_s: float, pause_s: float, mean_s: float) -> float:
    """Share of time in committed work, if losses are exponential (Daly, FGCS 2006, section 3).

    Args:
        work_s: Work between two commits, s.
        write_s: Time of a commit, s.
        pause_s: Pause after a loss, s.
        mean_s: Mean time between losses, s.
    """
    cycle = (work_s + write_s) / mean_s
    if not 0 < cycle < LARGEST:
        return 0.0
    return work_s / mean_s * math.exp(-pause_s / mean_s) / math.expm1(cycle)


def time_of_pause_s(pause_s: float, mean_s: float) -> float:
    """Mean time until a pause ends that starts anew with each loss, s; infinite if never."""
    return mean_s * math.expm1(pause_s / mean_s) if pause_s / mean_s < LARGEST else math.inf


def shape_goodput(
    shape: Shape, task: ElasticTask, pause_s: float, mean_s: float, announced: float
) -> float:
    """Committed samples a second with a shape of constant size, under losses at a constant rate.

    Between two losses all that was not committed is lost, and each loss costs a pause, which
    another loss lets start anew.

    Args:
        shape: The shape.
        task: What is trained.
        pause_s: Pause after a loss, s.
        mean_s: Mean time between losses, s.
        announced: Share of the losses that are announced early enough to write a checkpoint.
    """
    if shape.rate <= 0:
        return 0.0
    step_s = task.batch / shape.rate
    if shape.commit_steps:
        work_s = shape.commit_steps * step_s
        return shape.rate * useful_share(work_s, shape.write_s, pause_s, mean_s)
    kept = announced if shape.saves_on_notice else 0.0
    return kept * shape.rate * useful_share(step_s, 0.0, pause_s + task.checkpoint_s, mean_s)

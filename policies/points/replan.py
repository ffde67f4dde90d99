"""The decision point `Replan`: the shape of an elastic job after it gained or lost nodes.

An elastic job trains in steps of a global batch on a number of nodes that may change. What it did
is *committed* once a loss of nodes cannot undo it. Units: seconds, samples.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.policy import Context, Policy

if TYPE_CHECKING:
    from wattkeeper.policies.elastic.pipeline_plan import PipelinePlan

ReplanMoment = Literal["start", "lost", "gained", "boundary", "pause"]
"""Why `Replan` is asked.

`start`: the job got its first nodes, or enough of them again. `lost`: nodes that it held went
down. `gained`: nodes are free that it could take. `boundary`: a step ended, since it asked for
another shape, or must give nodes to others; all that it did is committed, or carried over by a
redundant shape. `pause`: nodes came or went while it pauses; the pause stays as long as it was.
Live, also: the connections of its nodes broke, and none was lost.
"""


class ElasticTask(NamedTuple):
    """What an elastic job trains, and what changes of its shape take.

    Attributes:
        name: Its name.
        least_nodes: The fewest nodes that it holds.
        rates: Samples a second by number of nodes, from 0 to the most nodes that it may hold; 0:
            it cannot train on so many.
        batch: Samples of a step.
        checkpoint_s: Time to write a checkpoint to storage, s.
        restart_s: Time to restart, with a checkpoint that is written before and read afterwards,
            by number of nodes as `rates`, s.
        reconfigure_s: Time in which nodes that kept their state take another shape, s.
        rates_by_system: `rates` of each training system that the policy could choose, where they
            were measured by system.
        plan: Templates of its pipelines; None: it has none.
    """

    name: str
    least_nodes: int
    rates: tuple[float, ...]
    batch: float
    checkpoint_s: float
    restart_s: tuple[float, ...]
    reconfigure_s: float
    rates_by_system: Mapping[str, tuple[float, ...]] = {}
    plan: PipelinePlan | None = None

    def trained_by(self, system: str) -> ElasticTask:
        """The task at the rates of one training system; as it is if rates name no systems."""
        if not self.rates_by_system:
            return self
        return self._replace(rates=self.rates_by_system[system])

    @property
    def start_nodes(self) -> int:
        """The fewest nodes on which it can train, by any of its systems."""
        tables = (self.rates, *self.rates_by_system.values())
        return min(next(nodes for nodes, rate in enumerate(table) if rate > 0) for table in tables)

    @property
    def most_nodes(self) -> int:
        """The most nodes that it may hold."""
        return len(self.rates) - 1

    def step_s(self, nodes: int) -> float:
        """Time of a step on so many nodes, s; infinite where it cannot train."""
        rate = self.rates[nodes]
        return self.batch / rate if rate > 0 else math.inf


class ShapeStage(NamedTuple):
    """Layers that some nodes train together.

    Attributes:
        first: Its first layer, from 0.
        end: The layer after its last one.
        nodes: Numbers of the nodes that hold it.
    """

    first: int
    end: int
    nodes: tuple[int, ...]


class Shape(NamedTuple):
    """How an elastic job trains.

    Attributes:
        nodes: Nodes that it holds.
        rate: Samples a second; 0: it waits for more nodes.
        commit_steps: After so many steps they are committed; 0: only before a planned change.
        write_s: Time that committing them takes, in which nothing is trained, s.
        saves_on_notice: Whether finished steps are written to storage when a loss is announced:
            they are kept if the notice comes in time, and the pause after the loss is longer by the
            time of a checkpoint.
        pipelines: Which nodes hold which layers, pipeline by pipeline; empty: each node holds all.
        is_redundant: Whether others train a stage on at once whose node is lost: while a node holds
            each stage, no work is lost, and what is not committed goes over into the next shape,
            after a planned change, too.
        redundant_share: Share of the time of a step in which nodes compute only what guards against
            a loss; it changes no time, and is counted apart.
    """

    nodes: int
    rate: float
    commit_steps: int = 1
    write_s: float = 0.0
    saves_on_notice: bool = False
    pipelines: tuple[tuple[ShapeStage, ...], ...] = ()
    is_redundant: bool = False
    redundant_share: float = 0.0

    def survives_on(self, nodes: Iterable[int]) -> bool:
        """Whether no work is lost with all but these nodes."""
        living = set(nodes)
        return self.is_redundant and all(
            not living.isdisjoint(stage.nodes) for pipeline in self.pipelines for stage in pipeline
        )


class ElasticView(NamedTuple):
    """An elastic job when `Replan` is asked about it.

    Attributes:
        job_id: The job.
        task: What it trains.
        moment: Why it is asked.
        held: Numbers of the nodes that it holds, after what was lost, ascending.
        spare: With `gained`: further nodes that it could take.
        shape: The shape in force, or the last one before the loss; None before the first one.
        mean_loss_s: Mean time between losses of one of the nodes that it holds and could take, as
            observed so far, s.
        announced: With `lost`: whether the loss was announced early enough to write a checkpoint.
        slowdown: Time of a step over that at full pace, beside the slowest node that it holds.
    """

    job_id: str
    task: ElasticTask
    moment: ReplanMoment
    held: tuple[int, ...]
    spare: int
    shape: Shape | None
    mean_loss_s: float
    announced: bool = False
    slowdown: float = 1.0

    @property
    def nodes(self) -> int:
        """How many nodes it holds."""
        return len(self.held)


class Reshape(NamedTuple):
    """The answer of `Replan`: another shape, and what the change costs.

    Attributes:
        shape: The shape.
        pause_s: Time in which nothing is trained, s.
        from_storage: Whether the state is read from a checkpoint in storage; else nodes that stay
            have it.
        copied_bytes: What nodes that stay send to others, bytes; NaN: not known.
        is_interim: Whether it is asked again at the end of the step under way (`boundary`).
    """

    shape: Shape
    pause_s: float
    from_storage: bool = False
    copied_bytes: float = math.nan
    is_interim: bool = False


class Replan(Policy):
    """What shape does an elastic job take after it gained or lost nodes?"""

    @abstractmethod
    def replan(self, ctx: Context, view: ElasticView) -> Reshape | None:
        """Choose a shape on all nodes that the job holds, and with `gained` on the spare ones, too.

        With `gained`, None changes nothing; another answer lets the job commit what it did at the
        end of its step, and then it is asked again (`boundary`). None at any other moment is an
        error. Where nodes come or go while the job pauses, it is asked again with all nodes
        (`pause`); of that answer the shape is taken.
        """
        raise NotImplementedError


def check_reshape(answer: Reshape, view: ElasticView) -> None:
    """Check an answer of `Replan`.

    Raises:
        PolicyError: If its shape is none for the nodes, or has values that are not possible.
    """
    shape, task = answer.shape, view.task
    nodes = view.nodes + view.spare
    if shape.nodes != nodes:
        raise PolicyError(
            f"job {view.job_id} has {nodes} nodes, and gets a shape of {shape.nodes}", "replan"
        )
    if not 0 <= shape.rate < math.inf:
        raise PolicyError(
            f"job {view.job_id} gets a rate of {shape.rate} samples/s on {nodes} nodes; it must be "
            f"finite and 0 or more (that of its table is {task.rates[nodes]:g})",
            "replan",
        )
    if shape.commit_steps < 0:
        raise PolicyError(
            f"job {view.job_id} commits its work after {shape.commit_steps} steps; allowed is 0 "
            "(never by itself) or more",
            "replan",
        )
    if not 0 <= shape.redundant_share < 1:
        raise PolicyError(
            f"job {view.job_id} gets redundant_share = {shape.redundant_share}; allowed is 0 up to "
            "less than 1",
            "replan",
        )
    times = {"pause_s": answer.pause_s, "write_s": shape.write_s}
    for name, value in times.items():
        if not 0 <= value < math.inf:
            raise PolicyError(
                f"job {view.job_id} gets {name} = {value}; allowed are finite times of 0 s or more",
                "replan",
            )
    if not answer.from_storage and view.shape is not None:
        _check_holders(shape, view.shape, view)


def _check_holders(shape: Shape, before: Shape, view: ElasticView) -> None:
    """Check that a node that stays holds each layer of a new shape."""
    if not before.pipelines:
        return
    living = set(view.held)
    stages = [stage for pipeline in before.pipelines for stage in pipeline]
    held = _layers(stage for stage in stages if living.intersection(stage.nodes))
    needed = _layers(stage for pipeline in shape.pipelines for stage in pipeline)
    if needed - held:
        raise PolicyError(
            f"job {view.job_id} takes a shape without reading storage, though no node that stays "
            f"holds layer {min(needed - held)}",
            "replan",
        )


def _layers(stages: Iterable[ShapeStage]) -> set[int]:
    return {layer for stage in stages for layer in range(stage.first, stage.end)}

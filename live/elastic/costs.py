"""What steps, checkpoints and changes of shape of a training took, and will take."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from wattkeeper.live.elastic.orders import TrainStep
from wattkeeper.policies.points.replan import ElasticTask

PAUSES: Final = 8
"""So many of the last pauses of a kind count: they are as long as the host is busy."""
TIMES: Final = 20
"""So many of the last steps on a number of nodes, and of the last checkpoints, count."""


class StepSplit(NamedTuple):
    """A step, and who computes which part of it.

    Attributes:
        batch: Its samples.
        microbatch: Samples whose gradient is computed at a time.
    """

    batch: int
    microbatch: int

    def orders(self, nodes: Sequence[int]) -> dict[int, TrainStep]:
        """The orders that let the workers of nodes train it: as equal parts as possible."""
        count, size = self.batch // self.microbatch, len(nodes)
        bounds = [self.microbatch * (count * rank // size) for rank in range(size + 1)]
        return {
            node: TrainStep(bounds[rank], bounds[rank + 1], self.microbatch, self.batch)
            for rank, node in enumerate(nodes)
        }


class MeasuredCosts:
    """See the module: the mean of the last times of a kind is what the next one will take.

    Args:
        job: Name of the training.
        least_nodes: The fewest nodes on which it trains.
        most_nodes: The most nodes.
        batch: Samples of a step.
    """

    def __init__(self, job: str, least_nodes: int, most_nodes: int, batch: int) -> None:
        self._job, self._least, self._most, self._batch = job, least_nodes, most_nodes, batch
        sizes = range(least_nodes, most_nodes + 1)
        self._steps_s = {nodes: _last(TIMES) for nodes in sizes}
        self._held_s = {(nodes, sends): _last(PAUSES) for nodes in sizes for sends in (False, True)}
        self._storage_s = {nodes: _last(PAUSES) for nodes in sizes}
        self._writes_s = _last(TIMES)

    def add_step(self, nodes: int, time_s: float) -> None:
        """Take note of a step."""
        self._steps_s[nodes].append(time_s)

    def add_write(self, time_s: float) -> None:
        """Take note of a checkpoint."""
        self._writes_s.append(time_s)

    def add_pause(self, nodes: int, time_s: float, from_storage: bool, sends: bool) -> None:
        """Take note of a pause of a change of shape to so many nodes.

        Args:
            nodes: So many.
            time_s: How long it was, s.
            from_storage: Whether all read a checkpoint.
            sends: Whether one sent its state to others.
        """
        times_s = self._storage_s[nodes] if from_storage else self._held_s[nodes, sends]
        times_s.append(time_s)

    @property
    def checkpoint_s(self) -> float:
        """Expected time of writing a checkpoint, s."""
        return _mean(self._writes_s)

    def step_s(self, nodes: int) -> float:
        """Expected time of a step, s."""
        return _mean(self._steps_s[nodes])

    def _pause_s(self, nodes: int, sends: bool) -> float:
        """Expected pause of nodes some of which hold the state, s; one alone sends it nowhere."""
        return _mean(self._held_s[nodes, sends and nodes > 1])

    def task(self, nodes: int, from_storage: bool, sends: bool) -> ElasticTask:
        """The task as a policy sees it.

        `checkpoint_s` is a write; `reconfigure_s` a pause on so many nodes in which workers held
        the state. `restart_s` is a pause in which all read a checkpoint, with a write before; or,
        where the policy restarts from held state, such a pause with two: policies take reading a
        checkpoint to last as long as writing it.

        Args:
            nodes: The policy is asked about so many.
            from_storage: Whether it last chose a shape that reads a checkpoint.
            sends: Whether a worker that has the state would send it to one that has not.
        """
        write_s = self.checkpoint_s
        sizes = [max(size, self._least) for size in range(self._most + 1)]
        if from_storage:
            restart_s = tuple([_mean(self._storage_s[size]) + write_s for size in sizes])
        else:
            restart_s = tuple([self._pause_s(size, sends) + 2 * write_s for size in sizes])
        return ElasticTask(
            self._job,
            self._least,
            tuple(
                [0.0] * self._least
                + [self._batch / self.step_s(size) for size in range(self._least, self._most + 1)]
            ),
            self._batch,
            write_s,
            restart_s,
            self._pause_s(max(nodes, self._least), sends),
        )


def _last(count: int) -> deque[float]:
    return deque(maxlen=count)


def _mean(times_s: deque[float]) -> float:
    return sum(times_s) / len(times_s)

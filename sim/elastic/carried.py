"""Work of earlier attempts that is neither committed nor lost: later ones decide on it.

A redundant shape trains through a loss, and hands its steps on to the next one. Where that loses
them, it is the time of the attempts in which they were trained that is lost.
"""

from __future__ import annotations

from typing import NamedTuple

from wattkeeper.sim.elastic.ledger import Fate, Spent
from wattkeeper.sim.kernel.rows import ABSENT
from wattkeeper.sim.recording.recorder import Recorder
from wattkeeper.sim.recording.row_types import LossRow


class CarriedSteps(NamedTuple):
    """What an attempt trained that is neither committed nor lost.

    Attributes:
        row: Its row in `Recorder.shapes`.
        attempt: Its row among the attempts of the recorder.
        steps_s: Time in finished steps, s.
        part_s: Time in the step that was under way when it ended, s.
        pace: Time of both at full pace over that which they took.
    """

    row: int
    attempt: int
    steps_s: float
    part_s: float
    pace: float


class CarriedWork:
    """See the module.

    Args:
        recorder: The records of the run.
        busy_w: Power of a node that trains, W.
    """

    def __init__(self, recorder: Recorder, busy_w: float) -> None:
        self._recorder = recorder
        self._busy_w = busy_w
        self._attempts: list[CarriedSteps] = []
        self._row = self._attempt = 0
        self._lost: dict[int, tuple[int, float]] = {}

    def add(self, spent: Spent, node: int | None, lost_s: float) -> None:
        """Carry the steps of the attempt that was recorded last.

        Args:
            spent: What it did.
            node: The lost node with which it ended; None: none.
            lost_s: Time at full pace that it lost itself, s.
        """
        self._row, self._attempt = len(self._recorder.shapes) - 1, self._recorder.attempts - 1
        if node is not None:
            self._book(self._row, self._attempt, node, lost_s)
        took_s = spent.carried_s + spent.part_s
        if took_s > 0:
            pace = 1 - spent.carried_slow_s / took_s
            self._attempts.append(
                CarriedSteps(self._row, self._attempt, spent.carried_s, spent.part_s, pace)
            )

    def _book(self, row: int, attempt: int, node: int, more_s: float) -> None:
        """Record that an attempt lost more time at full pace (s); `node`: as in `Recorder`."""
        before, lost_s = self._lost.get(attempt, (ABSENT, 0.0))
        node, lost_s = before if node == ABSENT else node, lost_s + more_s
        self._lost[attempt] = node, lost_s
        power_w = self._busy_w * self._recorder.shapes[row].nodes
        self._recorder.add_detail(LossRow(node, lost_s, lost_s * power_w), attempt)

    def amend(self, samples: float, lost_samples: float, node: int | None, node_s: float) -> None:
        """Record what became of carried steps in an attempt that ends as it begins.

        It has no record: that of the one before has the samples, and the loss of a node.

        Args:
            samples: Samples that were committed.
            lost_samples: Samples that were lost.
            node: The node that was lost; None: none.
            node_s: Time of nodes that was lost, s; the attempts that trained it have it already.
        """
        if not (samples or lost_samples or node_s):
            return
        row = self._recorder.shapes[self._row]
        self._recorder.shapes[self._row] = row._replace(
            samples=row.samples + samples, lost_samples=row.lost_samples + lost_samples
        )
        if node is not None:
            self._book(self._row, self._attempt, node, 0.0)

    def settle(self, spent: Spent, fate: Fate) -> float:
        """Commit or lose what the next attempt did; returns the node time that is lost.

        Args:
            spent: What it did.
            fate: What becomes of steps that it did not commit.

        Returns:
            Time at full pace of all nodes, s.
        """
        if spent.ended_step:
            self._attempts = [
                each._replace(steps_s=each.steps_s + each.part_s, part_s=0.0)
                for each in self._attempts
            ]
        if spent.committed:
            self._attempts = [each._replace(steps_s=0.0) for each in self._attempts if each.part_s]
        return 0.0 if fate == "carried" else self._end(is_lost=fate != "open")

    def lose(self) -> float:
        """Lose what is left; returns the time at full pace of all nodes, s."""
        return self._end(is_lost=True)

    def _end(self, is_lost: bool) -> float:
        """Lose what is left, or count it as neither committed nor lost; returns as `lose`."""
        node_s, shapes = 0.0, self._recorder.shapes
        for each in self._attempts:
            row, gone_s = shapes[each.row], each.steps_s + each.part_s
            if not is_lost:
                shapes[each.row] = row._replace(open_s=row.open_s + gone_s)
                continue
            shapes[each.row] = row._replace(lost_s=row.lost_s + gone_s)
            node_s += row.nodes * gone_s * each.pace
            if gone_s > 0:
                self._book(each.row, each.attempt, ABSENT, gone_s * each.pace)
        self._attempts = []
        return node_s

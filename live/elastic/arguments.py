"""The arguments of an elastic training."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.live.elastic.replica import MakeReplica
from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.sim.cluster.losses import NodeChange
from wattkeeper.traces.files.names import explain_label

STATE_FILE: Final = "state.pt"
"""File with the state of a training that ended."""
CHANGES: Final = ("down", "up", "notice")
"""What may happen to a node."""


class ElasticArguments(NamedTuple):
    """The arguments of `wattkeeper.live.elastic.training.train_elastic`."""

    make: MakeReplica
    job: str
    steps: int
    batch: int
    microbatch: int
    nodes: int
    least_nodes: int
    replan: PolicyConfig
    output: Path
    away_s: float
    changes: tuple[NodeChange, ...]
    patience_s: float

    def check(self) -> None:
        """Check them, all at once.

        Raises:
            InputError: With a problem for each wrong one.
        """
        name = explain_label(self.job, "job")
        most = self.batch // max(1, self.microbatch)
        wrong = [
            (bool(name), name),
            (self.steps < 1, f"found steps={self.steps}; must be at least 1"),
            (
                self.microbatch < 1 or self.batch < 1 or self.batch % max(1, self.microbatch) > 0,
                f"found batch={self.batch} and microbatch={self.microbatch}; the batch must be a "
                "multiple of the micro-batch",
            ),
            (
                not 1 <= self.least_nodes <= self.nodes <= most,
                f"found least_nodes={self.least_nodes} and nodes={self.nodes}; allowed: 1 to the "
                f"micro-batches of a step ({most}), and not more least_nodes than nodes",
            ),
            (
                (self.output / STATE_FILE).exists(),
                f"{self.output} has the state of a training that ended; give another folder",
            ),
            (not self.away_s >= 0, f"found away_s={self.away_s}; must be 0 or more"),
            (not self.patience_s > 0, f"found patience_s={self.patience_s}; must be above 0"),
        ]
        for change in self.changes:
            applies = change.event not in CHANGES or not 0 <= change.node < self.nodes
            wrong.append(
                (
                    applies,
                    f"found the change {change.event!r} of node {change.node}; allowed: "
                    f"{', '.join(CHANGES)} of nodes 0 to {self.nodes - 1}",
                )
            )
        if problems := [Problem(message) for applies, message in wrong if applies]:
            raise InputError(problems)
        try:
            pickle.dumps(self.make)
        except Exception as error:
            raise InputError(
                f"make is sent to other processes, and cannot be pickled ({error}): give a "
                "function of a module, or functools.partial of one"
            ) from None

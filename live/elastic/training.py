"""Elastic trainings on this host: `train_elastic`."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.live.elastic.coordinator import ElasticCoordinator, ReplanAsker
from wattkeeper.live.elastic.costs import MeasuredCosts, StepSplit
from wattkeeper.live.elastic.groups import GroupStore
from wattkeeper.live.elastic.progress import TrainingProgress
from wattkeeper.live.elastic.records import ElasticResults
from wattkeeper.live.elastic.rehearsal import PauseRehearsal
from wattkeeper.live.elastic.replica import MakeReplica
from wattkeeper.live.elastic.workers import Workers
from wattkeeper.live.session.distributed import describe_exit
from wattkeeper.policies.errors import EnvironmentLacks, InputError, Problem
from wattkeeper.policies.registry import PolicyConfig, find_config
from wattkeeper.sim.cluster.losses import NodeChange
from wattkeeper.traces.files.atomic import settle
from wattkeeper.traces.files.locks import lock
from wattkeeper.traces.files.names import explain_label
from wattkeeper.traces.files.private import make_private_folder

CHECKPOINTS: Final = "checkpoints"
"""Folder of checkpoints; a training leaves none."""
STATE_FILE: Final = "state.pt"
"""File with the state of a training that ended."""
CHANGES: Final = ("down", "up", "notice")
"""What may happen to a node."""


class ElasticArguments(NamedTuple):
    """The arguments of `train_elastic`."""

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


def train_elastic(
    make: MakeReplica,
    *,
    job: str,
    steps: int,
    batch: int,
    microbatch: int,
    nodes: int,
    output: str | Path,
    least_nodes: int = 1,
    replan: str | PolicyConfig = "oobleck",
    away_s: float = 60.0,
    changes: Sequence[NodeChange] = (),
    patience_s: float = 600.0,
) -> ElasticResults:
    """Train with a process a node, which may be killed and come back.

    Which shape the training takes after that is what `Replan` decides, as in a simulation. Before,
    changes of shape are rehearsed, to know what they take. A script that calls this does so under
    `if __name__ == "__main__"`, since the workers import it.

    Args:
        make: Makes the replica of a worker, in its process.
        job: Name of the training in results.
        steps: Its steps.
        batch: Samples of a step, on any number of nodes.
        microbatch: Samples whose gradient is computed at a time; gradients are added up in their
            order, so that losses are the same to the last bit on any number of nodes.
        nodes: Number of nodes.
        output: Folder for results and checkpoints; one without results of another training.
        least_nodes: The fewest nodes to train on.
        replan: The policy, by name or as its config.
        away_s: Time from the loss of a node that no change stated to its return, s.
        changes: What happens to nodes: `down` kills their worker, `up` starts it again, `notice`
            announces a loss (SIGTERM to the worker); in s since the training begins.
        patience_s: A worker that takes longer for a step or a checkpoint is killed, s.

    Raises:
        InputError: If an argument is wrong, or the code of the training raises an exception.
        PolicyError: If the policy fails.
        EnvironmentLacks: If workers cannot be started, or too few are left for good.
    """
    arguments = ElasticArguments(
        make,
        job,
        steps,
        batch,
        microbatch,
        nodes,
        least_nodes,
        find_config("replan", replan),
        Path(output).absolute(),
        away_s,
        tuple(changes),
        patience_s,
    )
    arguments.check()
    folder = arguments.output / CHECKPOINTS
    try:
        make_private_folder(folder)
        release = lock(folder / "lock")
    except BlockingIOError:
        raise InputError("another training writes there", arguments.output) from None
    except OSError as error:
        raise EnvironmentLacks(f"cannot write to {folder}: {error.strerror or error}") from error
    try:
        return _run(arguments, folder)
    finally:
        release()


def _run(arguments: ElasticArguments, folder: Path) -> ElasticResults:
    """Train with workers that end with this call, and checkpoints that are removed with it."""
    _empty(folder)
    workers = Workers(
        arguments.make, arguments.nodes, arguments.output, arguments.away_s, arguments.patience_s
    )
    try:
        return _train(arguments, workers, folder)
    finally:
        workers.end()
        _empty(folder)


def _empty(folder: Path) -> None:
    """Remove the checkpoints of a training that ended, or was killed."""
    settle(folder)
    for path in [*folder.glob("step-*.pt"), folder / "rehearsal.pt"]:
        path.unlink(missing_ok=True)


def _train(arguments: ElasticArguments, workers: Workers, folder: Path) -> ElasticResults:
    """Rehearse, train, and write the results, after an error, too."""
    job, steps, batch, output = arguments.job, arguments.steps, arguments.batch, arguments.output
    least, most = arguments.least_nodes, arguments.nodes
    costs, split = MeasuredCosts(job, least, most, batch), StepSplit(batch, arguments.microbatch)
    asker = ReplanAsker(job, arguments.replan, workers.now_s)
    progress = TrainingProgress(job, steps, batch, folder, output / STATE_FILE)
    from wattkeeper.live.elastic.tables import write_results  # workers need no pyarrow

    with GroupStore() as store:
        PauseRehearsal(workers, store, costs, split, folder).run(least, most)
        workers.begin(arguments.changes)
        coordinator = ElasticCoordinator(workers, store, costs, asker, split, progress, least, most)
        try:
            coordinator.run()
            asker.end(sum(shape.steps_s for shape in progress.shapes))
            ended = "done"
        except BaseException as error:
            ended = describe_exit(error)
            raise
        finally:
            progress.close_shape(workers.now_s())
            results = ElasticResults(
                tuple(progress.losses),
                tuple(progress.shapes),
                tuple(coordinator.lost),
                tuple(asker.decisions),
                progress.ledger.lost,
                progress.final_path,
            )
            replan = arguments.replan.model_dump(mode="json")
            values = {"job": job, "ended": ended, "replan": replan}
            write_results(output, results, values)
    return results

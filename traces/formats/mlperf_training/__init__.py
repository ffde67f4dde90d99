"""Results of MLPerf Training with power, as they are published (mlcommons/training_results_vX.Y).

``SUBMITTER/results/SYSTEM/BENCHMARK/result_N.txt``: the log of a run. Lines hold ``:::MLLOG`` and
an object of JSON, a rank may stand before; other lines are skipped.
``SUBMITTER/results/SYSTEM/BENCHMARK/power/result_N/node_M.txt``: readings of a node's power, and
``sw_M.txt``: an estimate of a switch, which is noted and belongs to no node.
``SUBMITTER/systems/SYSTEM.json``: what the system is.

An epoch of these profiles is the training from one evaluation to the next. The time of a run is
that from its first ``run_start`` to its last ``run_stop``; its energy is that of all its nodes
between the two, each reading held until the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.formats.mlperf_training.logs import LoggedRun, read_run
from wattkeeper.traces.formats.mlperf_training.power import RunPower, measure_power
from wattkeeper.traces.formats.mlperf_training.systems import System, read_system
from wattkeeper.traces.formats.mlperf_training.targets import TARGETS, Target
from wattkeeper.traces.formats.mlperf_training.tree import Tree, open_tree
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.measurements import (
    Evaluation,
    MeasuredEpochs,
    MeasuredWorkload,
    Setting,
    build_tables,
)
from wattkeeper.traces.readers.base import Format
from wattkeeper.traces.trace import Trace

SOURCE: Final = "MLPerf Training results with power: https://github.com/mlcommons"
LICENCE: Final = "Apache-2.0"
SHOWN: Final = 20
"""Examples of wrong runs that are kept."""


class Run(NamedTuple):
    """A run of a system.

    Attributes:
        submitter: Who ran it.
        system: What it ran on.
        benchmark: What was trained.
        log: What its log says.
        power: What its meters say; None: there is none.
        why_not: Why its energy is not known; empty if it is.
        where: Its log, for messages.
    """

    submitter: str
    system: System
    benchmark: str
    log: LoggedRun
    power: RunPower | None
    why_not: str
    where: str

    @property
    def kind(self) -> tuple[str, str, int]:
        """Benchmark, GPU type and number of GPUs."""
        return self.benchmark, self.system.gpu_type, self.system.gpus


def read(paths: Sequence[Path]) -> Trace:
    """Read a published folder, or an archive of it.

    Raises:
        TraceError: If a log, a power file or the description of a system is missing or wrong.
    """
    return _read(paths, _refuse)


def read_good(paths: Sequence[Path]) -> Trace:
    """As `read`, without the runs that are wrong."""
    return _read(paths, lambda problems: None)


def _refuse(problems: Sequence[Problem]) -> None:
    raise TraceError(
        [*problems[:MOST_FAULTS], Problem("--skip-bad leaves out runs that cannot be read")]
    )


def _read(paths: Sequence[Path], on_wrong: Callable[[Sequence[Problem]], None]) -> Trace:
    runs: list[Run] = []
    wrong: list[Problem] = []
    inputs: dict[str, str] = {}
    for path in paths:
        with open_tree(path) as tree:
            for run in _runs(tree):
                if isinstance(run, TraceError):
                    wrong += run.problems[:1]
                else:
                    runs.append(run)
            inputs |= tree.digests()
    if wrong:
        on_wrong(wrong)
    where = ", ".join(map(str, paths))
    if not runs:
        raise TraceError("no run is left" if wrong else "has no results of runs", where)
    _check_systems(runs)
    kept, left_out = _with_power(runs)
    quality = {
        "rows": len(runs) + len(wrong),
        "kept": len(kept),
        "dropped": left_out,
        "wrong": len(wrong),
        "wrong_examples": [str(problem) for problem in wrong[:SHOWN]],
    }
    return Trace(
        name="mlperf-training",
        kind="profiles",
        tables=build_tables([_measure(run) for run in kept], _workloads(kept)),
        format=FORMAT.name,
        origin="recorded",
        source=SOURCE,
        licence=LICENCE,
        inputs=inputs,
        notes=tuple(_notes(kept, left_out)),
        parameters={"systems": _describe_systems(kept)},
        quality=quality,
    )


def _runs(tree: Tree) -> Iterator[Run | TraceError]:
    """The runs of a tree in order of their names; those that are wrong as what is wrong."""
    systems: dict[tuple[str, str], System] = {}
    for place in tree.runs:
        try:
            key = place.submitter, place.system
            if key not in systems:
                systems[key] = read_system(tree, *key)
            system = systems[key]
            log = read_run(tree.lines(place.log), tree.where(place.log))
            power, why_not = measure_power(tree, place.power, log, system.nodes)
        except TraceError as error:
            yield error
            continue
        where = tree.where(place.log)
        yield Run(place.submitter, system, place.benchmark, log, power, why_not, where)


def _check_systems(runs: Sequence[Run]) -> None:
    """Refuse two systems whose runs nothing would tell apart."""
    first: dict[tuple[str, str, int], Run] = {}
    for run in runs:
        other = first.setdefault(run.kind, run)
        if (other.submitter, other.system) != (run.submitter, run.system):
            benchmark, gpu_type, gpus = run.kind
            named = " and ".join(f"{each.submitter}/{each.system.name}" for each in (other, run))
            raise TraceError(
                f"{benchmark} on {gpus} x {gpu_type} was run by {named}: import one at a time",
                run.where,
            )


def _with_power(runs: Sequence[Run]) -> tuple[list[Run], dict[str, int]]:
    """The runs, without those of unknown energy where others of their kind have it."""
    measured = {(*run.kind, run.log.batch_size) for run in runs if run.power is not None}
    kept: list[Run] = []
    left_out: dict[str, int] = defaultdict(int)
    for run in runs:
        if run.power is None and (*run.kind, run.log.batch_size) in measured:
            left_out[run.why_not] += 1
        else:
            kept.append(run)
    return kept, dict(left_out)


def _measure(run: Run) -> MeasuredEpochs:
    log, epochs = run.log, max(1, run.log.evaluations)
    return MeasuredEpochs(
        Setting(*run.kind, log.batch_size),
        log.time_s / epochs,
        epoch_j=None if run.power is None else run.power.energy_j / epochs,
        energy_of=None if run.power is None else "node",
        nodes=run.system.nodes,
        epochs=epochs,
        reached=log.reached,
        seed=log.seed,
        evaluations=tuple(Evaluation(*point) for point in log.curve),
        where=run.where,
    )


def _workloads(runs: Sequence[Run]) -> list[MeasuredWorkload]:
    by_benchmark: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_benchmark[run.benchmark].append(run)
    return [
        MeasuredWorkload(
            name,
            *(TARGETS.get(name) or _infer_target(its_runs)),
            default_batch_size=max(run.log.batch_size for run in its_runs),
        )
        for name, its_runs in by_benchmark.items()
    ]


def _infer_target(runs: Sequence[Run]) -> Target:
    """The worst last value of the runs that succeeded, which by their logs reached the target."""
    curves = [run.log.curve for run in runs if run.log.reached and run.log.curve]
    if not curves:
        name = runs[0].benchmark
        known = ", ".join(TARGETS)
        text = f"no run of {name} reached its target, and which it is is known of {known} alone"
        raise TraceError(text, runs[0].where)
    last = [curve[-1][2] for curve in curves]
    rises = sum(curve[-1][2] - curve[0][2] for curve in curves) >= 0
    return Target(curves[0][-1][1], min(last) if rises else max(last), rises)


def _notes(runs: Sequence[Run], left_out: Mapping[str, int]) -> Iterator[str]:
    yield (
        "An epoch is the training from one evaluation to the next; runs end at the target or at "
        "their largest number of evaluations. Power limits and clocks were not varied."
    )
    measured = [run.power for run in runs if run.power is not None]
    if measured:
        least = min(power.coverage for power in measured)
        yield (
            "Energy is of whole nodes at the plug, between run_start and run_stop: GPUs and all "
            f"else in them, without switches. Readings cover at least {100 * least:.2f} % of each "
            "run, and nothing is added for the rest."
        )
    for switch_w in sorted({p.switches_w for p in measured if p.switches_w is not None}):
        yield f"Switches are estimated to draw {switch_w:g} W; the energy does not include them."
    for system in sorted({run.system for run in runs if run.power is None}):
        yield f"{system.name}: energy is not known, for there are no readings for whole runs."
    for reason, count in left_out.items():
        yield f"{count} runs are left out, for their energy is not known: {reason}."
    if efficiencies := {p.efficiency for p in measured if p.efficiency is not None}:
        listed = ", ".join(f"{each:g}" for each in sorted(efficiencies))
        yield f"Readings in DC are divided by their conversion_eff ({listed}): power at the plug."
    for benchmark in sorted({run.benchmark for run in runs} - set(TARGETS)):
        yield (
            f"{benchmark}: its target is not known here; runs count as their logs say, and the "
            "target is the worst last value of those that succeeded."
        )
    if broken := sum(run.log.broken for run in runs):
        yield f"{broken} lines of logs hold :::MLLOG and no whole object; they were skipped."


def _describe_systems(runs: Sequence[Run]) -> list[Mapping[str, Any]]:
    seen = dict.fromkeys((run.submitter, run.system) for run in runs)
    return [{"submitter": submitter, **system._asdict()} for submitter, system in seen]


def sniff(path: Path) -> bool:
    """Whether a path is a folder that holds results and systems, or one submitter a folder."""
    try:
        return path.is_dir() and any(
            (folder / "systems").is_dir() and (folder / "results").is_dir()
            for folder in (path, *path.iterdir())
        )
    except OSError:
        return False


FORMAT: Final = Format(
    name="mlperf-training",
    summary="MLPerf Training results with power: logs, readings of nodes, systems",
    takes="the published folder, that of a submitter, or a tar archive of either",
    read=read,
    sniff=sniff,
    read_good=read_good,
)

"""Runs a sweep, point by point; results of quick units are kept as those of their point."""

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from wattkeeper.policies.errors import (
    EnvironmentLacks,
    InputError,
    PolicyError,
    Problem,
    group_alike,
    merge_alike,
)
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.document.blocks import Document
from wattkeeper.scenarios.inputs.run_inputs import ScenarioInputs
from wattkeeper.scenarios.run.garbage import end_start
from wattkeeper.scenarios.run.process_pool import run_tasks
from wattkeeper.scenarios.run.run import conclude
from wattkeeper.scenarios.run.unit import UnitResult, run_unit
from wattkeeper.scenarios.spec.loading import locate_error
from wattkeeper.scenarios.sweep.cache import load, lock_folder, remove_folder, store
from wattkeeper.scenarios.sweep.points import SweepPoint
from wattkeeper.scenarios.sweep.results import write_sweep
from wattkeeper.scenarios.sweep.work import PointWork, SweepUnit, note_policy_files, prepare
from wattkeeper.sim.results.folder import work_folder, write_results
from wattkeeper.traces.files.private import open_private
from wattkeeper.traces.files.shared import SharedFile, SharedValue, read_shared

ERRORS: Final = "errors.txt"
"""Beside unfinished work: tracebacks of unexpected errors when the sweep ran last."""

LONGEST_S: Final = 1.0
"""Time after which a process keeps results of units, rather than wait for more of their point."""

Outcomes = Generator[tuple["PointWork", "SweepUnit", "Exception | None"], None, None]


class Task(NamedTuple):
    """Units of a point that one process runs; without any, the point only has to be assembled."""

    work: PointWork
    units: Sequence[SweepUnit]


def run_sweep(
    points: Sequence[SweepPoint],
    results: Path,
    workers: int,
    ray: str | None,
    progress: Callable[[int, int], None],
    tell: Callable[[str], None],
) -> tuple[Document, list[str]]:
    """Run all points of a sweep that are not done yet, and write the results folder.

    The results folder has unfinished work beside it. For the other arguments see
    `wattkeeper.scenarios.run.run.run`.

    Returns:
        What the sweep says; a line for each run that failed, or for all that failed alike, and one
        that says where tracebacks are, if there are any. If there is no line, the folder of
        unfinished work is gone.

    Raises:
        WattkeeperError: If a point cannot run at all; nothing has run then.
    """
    folder = work_folder(results, "sweep")
    errors = folder / ERRORS
    with lock_folder(folder) as descriptor, SharedFile(folder) as shared:
        errors.unlink(missing_ok=True)
        works = prepare(points, folder, shared, tell)
        _load_inputs.cache_clear()
        end_start()
        for place in note_policy_files(points[0].loaded.document.policy_files or (), folder):
            tell(f"{place}: changed since {folder} was begun; the runs of the sweep begin anew.")
        total = sum(len(work.units) for work in works)
        left = sum(len(work.missing) for work in works)
        if left < total:
            tell(f"Goes on with {folder}: {total - left} of {total} runs are done.")
        progress(total - left, total)
        outcomes = _run_locally(works, workers) if ray is None else _run_on_ray(works, ray)
        try:
            with closing(outcomes):
                for work, unit, outcome in outcomes:
                    _record_outcome(work, unit, outcome, errors)
                    left -= 1
                    progress(total - left, total)
        except KeyboardInterrupt:
            tell(f"{total - left} of {total} runs are done; the same command goes on with them.")
            raise
        works.sort(key=lambda work: work.point.id)
        finished = write_sweep(results, works)
        if not any(work.failures for work in works):
            remove_folder(folder, descriptor)
    failures = [_failure_of(work, failure) for work in works for failure in work.failures.values()]
    failed = [merge_alike(alike) for alike in group_alike(failures)]
    return finished, failed + [f"Where unexpected errors come from: {errors}"] * errors.exists()


def _failure_of(work: PointWork, failure: Json) -> Problem:
    run = f"{failure['variant']}, seed {failure['seed']}"
    return Problem(failure["message"], f"{work.point.id} ({work.point}), {run}")


def _record_outcome(
    work: PointWork, unit: SweepUnit, outcome: Exception | None, errors: Path
) -> None:
    """Record a finished unit; the traceback of an unexpected error goes to the file of errors."""
    work.missing.discard(unit.result)
    if outcome is None:
        return
    variant, seed = unit.spec.variant.name, unit.spec.seed
    if isinstance(outcome, InputError | PolicyError):
        outcome = locate_error(work.point.loaded, variant, outcome)
    failure = {"variant": variant, "seed": seed, "message": str(outcome)}
    work.failures[unit.result] = failure
    traceback = "".join(getattr(outcome, "__notes__", ()))
    if traceback:
        with open(
            errors, "a", encoding="utf-8", errors="backslashreplace", opener=open_private
        ) as file:
            file.write(f"{_failure_of(work, failure)}\n{traceback}\n")


def _missing_tasks(works: Sequence[PointWork], workers: int) -> deque[Task]:
    """What is missing of each point; unit by unit where there are fewer points than workers."""
    tasks = [
        Task(work, [unit for unit in work.units if unit.result in work.missing])
        for work in works
        if work.missing or not work.done.exists()
    ]
    return deque(tasks if len(tasks) >= workers else chain.from_iterable(map(_split, tasks)))


def _split(task: Task) -> list[Task]:
    """The units of a task, each as a task of its own."""
    return [Task(task.work, [unit]) for unit in task.units] or [task]


def _run_locally(works: Sequence[PointWork], workers: int) -> Outcomes:
    """Run in processes of this machine."""
    tasks = _missing_tasks(works, workers)
    workers = min(workers, max(1, len(tasks)))
    inherited = {work.inputs.descriptor for work in works}
    with closing(run_tasks(tasks, _run_task, workers, _split, inherited)) as results:
        for (work, units), result in results:
            if isinstance(result, EnvironmentLacks):
                if not units:
                    raise EnvironmentLacks(f"results of {work.point}: {result}")
                result = [result]
            for unit, outcome in zip(units, result, strict=False):
                yield work, unit, outcome
            left = units[len(result) :]
            half = (len(left) + 1) // 2  # another worker may take the second
            tasks.extendleft(Task(work, part) for part in (left[half:], left[:half]) if part)
            if not work.missing and not work.failures and not work.done.exists():
                tasks.appendleft(Task(work, ()))


def _run_on_ray(works: Sequence[PointWork], address: str) -> Outcomes:
    """Run on a Ray cluster; points are assembled on this machine."""
    from wattkeeper.scenarios.run import ray_pool

    tasks: deque[tuple[PointWork, SweepUnit]] = deque()
    for work, units in _missing_tasks(works, 1):
        tasks.extend((work, unit) for unit in units)
        if not units:
            assemble_point(work)
    with closing(
        ray_pool.run_tasks(
            tasks,
            lambda task: (task[1].spec, task[0].inputs),
            lambda place: _load_inputs(place).runs,
            address,
        )
    ) as outcomes:
        for (work, unit), outcome in outcomes:
            error = outcome if isinstance(outcome, EnvironmentLacks) else _error_of(outcome)
            if isinstance(outcome, UnitResult) and error is None:
                store(unit.result, outcome)
            yield work, unit, error
            if not work.missing and not work.failures:
                assemble_point(work)


@lru_cache(maxsize=1)
def _load_inputs(place: SharedValue) -> ScenarioInputs:
    """The inputs of a point; all processes of this host share the memory of their tables."""
    inputs: ScenarioInputs = read_shared(place)
    return inputs


def _run_task(task: Task) -> list[Exception | None]:
    """Run units, at least one and for `LONGEST_S` at most, and keep their results.

    Those that complete their point are written as its results folder at once.

    Returns:
        The error of each unit that ran; None if it ended well.
    """
    work, units = task
    runs, began = _load_inputs(work.inputs).runs, time.monotonic()
    results: list[UnitResult] = []
    for unit in units:
        results.append(run_unit(unit.spec, runs[unit.spec.variant.name]))
        if time.monotonic() - began > LONGEST_S:
            break
    errors = [_error_of(result) for result in results]
    good = {
        unit.result: result
        for unit, result, error in zip(units, results, errors, strict=False)
        if error is None
    }
    is_complete = good.keys() == work.missing and not work.failures
    if is_complete and (not units or time.monotonic() - began <= LONGEST_S):
        assemble_point(work, good)
    else:
        for path, result in good.items():
            store(path, result)
    return errors


def _error_of(outcome: UnitResult) -> Exception | None:
    return outcome.result if isinstance(outcome.result, Exception) else None


def assemble_point(
    work: PointWork, known: Mapping[Path, UnitResult] = MappingProxyType({})
) -> None:
    """Write the results folder of a point, as `wattkeeper run` would but for its page.

    The stored results of its units are removed then.

    Args:
        work: The point.
        known: Results that are not stored, by the files where they would be.
    """
    units = [known.get(unit.result) or load(unit.result) for unit in work.units]
    runs = [unit.result for unit in units if not isinstance(unit.result, Exception)]
    result = conclude(work.point.loaded.scenario, _load_inputs(work.inputs), work.sources, runs)
    result.manifest["wall_s"] = sum(unit.wall_s for unit in units)
    write_results(work.done, result.results, result.summary_text, result.manifest, durable=False)
    for unit in work.units:
        if unit.result not in known:
            unit.result.unlink(missing_ok=True)

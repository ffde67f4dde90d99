"""Runs a sweep, unit by unit; a result is stored as soon as it is there."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.inputs.policy_checks import locate_error
from wattkeeper.scenarios.inputs.run_inputs import ScenarioInputs
from wattkeeper.scenarios.run.garbage import end_start
from wattkeeper.scenarios.run.process_pool import run_tasks
from wattkeeper.scenarios.run.run import conclude
from wattkeeper.scenarios.run.unit import UnitResult, run_unit
from wattkeeper.scenarios.sweep.cache import load, lock_folder, remove_folder, store
from wattkeeper.scenarios.sweep.points import SweepPoint
from wattkeeper.scenarios.sweep.results import write_sweep
from wattkeeper.scenarios.sweep.work import PointWork, SweepUnit, note_policy_files, prepare
from wattkeeper.sim.results.folder import work_folder
from wattkeeper.traces.files.shared import read_shared

ERRORS: Final = "errors.txt"
"""Beside unfinished work: tracebacks of unexpected errors when the sweep ran last."""

Outcomes = Generator[tuple["SweepUnit | PointWork", "Exception | None"], None, None]


def run_sweep(
    points: Sequence[SweepPoint],
    results: Path,
    workers: int,
    ray: str | None,
    progress: Callable[[int, int], None],
    tell: Callable[[str], None],
) -> list[str]:
    """Run all points of a sweep that are not done yet, and write the results folder.

    The results folder has unfinished work beside it. For the other arguments see
    `wattkeeper.scenarios.run.run.run`.

    Returns:
        A line for each run that failed, and one that says where tracebacks are, if there are any.
        If there is none, the folder of unfinished work is gone.

    Raises:
        WattkeeperError: If a point cannot run at all; nothing has run then.
    """
    folder = work_folder(results, "sweep")
    errors = folder / ERRORS
    with lock_folder(folder):
        errors.unlink(missing_ok=True)
        works = prepare(points, folder)
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
        by_point = {work.point.id: work for work in works}
        try:
            with closing(outcomes):
                for unit, outcome in outcomes:
                    if isinstance(unit, SweepUnit):
                        _record_outcome(by_point[unit.point], unit, outcome, errors)
                        left -= 1
                        progress(total - left, total)
        except KeyboardInterrupt:
            tell(f"{total - left} of {total} runs are done; the same command goes on with them.")
            raise
        works.sort(key=lambda work: work.point.id)
        write_sweep(results, works)
        if not any(work.failures for work in works):
            remove_folder(folder)
    failed = [
        _describe_failure(work, failure) for work in works for failure in work.failures.values()
    ]
    return failed + [f"Where unexpected errors come from: {errors}"] * errors.exists()


def _describe_failure(work: PointWork, failure: Json) -> str:
    run = f"{failure['variant']}, seed {failure['seed']}"
    return f"{work.point.id} ({work.point}), {run}: {failure['message']}"


def _record_outcome(
    work: PointWork, unit: SweepUnit, outcome: Exception | None, errors: Path
) -> None:
    """Record a finished unit; the traceback of an unexpected error goes to the file of errors."""
    work.missing.discard(unit.result)
    if outcome is None:
        return
    variant, seed = unit.spec.variant, unit.spec.seed
    if isinstance(outcome, InputError | PolicyError):
        outcome = locate_error(work.point.loaded, variant, outcome)
    failure = {"variant": variant, "seed": seed, "message": str(outcome)}
    work.failures[unit.result] = failure
    traceback = "".join(getattr(outcome, "__notes__", ()))
    if traceback:
        with errors.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{_describe_failure(work, failure)}\n{traceback}\n")


def _missing_tasks(works: Sequence[PointWork]) -> deque[SweepUnit | PointWork]:
    """Units without results, and points that only have to be assembled."""
    tasks: deque[SweepUnit | PointWork] = deque()
    for work in works:
        tasks += [unit for unit in work.units if unit.result in work.missing]
        if not work.missing and not work.done.exists():
            tasks.append(work)
    return tasks


def _run_locally(works: Sequence[PointWork], workers: int) -> Outcomes:
    """Run in processes of this machine."""
    tasks = _missing_tasks(works)
    by_point = {work.point.id: work for work in works}
    with closing(run_tasks(tasks, _run_task, min(workers, max(1, len(tasks))))) as outcomes:
        for task, outcome in outcomes:
            if isinstance(outcome, EnvironmentLacks) and isinstance(task, PointWork):
                raise EnvironmentLacks(f"results of {task.point}: {outcome}")
            yield task, outcome
            if isinstance(task, SweepUnit):
                work = by_point[task.point]
                if not work.missing and not work.failures:
                    tasks.appendleft(work)


def _run_on_ray(works: Sequence[PointWork], address: str) -> Outcomes:
    """Run on a Ray cluster; points are assembled on this machine."""
    from wattkeeper.scenarios.run import ray_pool

    by_point = {work.point.id: work for work in works}
    tasks: deque[SweepUnit] = deque()
    for task in _missing_tasks(works):
        if isinstance(task, PointWork):
            assemble_point(task)
        else:
            tasks.append(task)
    with closing(
        ray_pool.run_tasks(
            tasks,
            lambda unit: (unit.spec, unit.inputs),
            lambda path: _load_inputs(path).runs,
            address,
        )
    ) as outcomes:
        for unit, outcome in outcomes:
            yield unit, outcome if isinstance(outcome, Exception) else _store_result(unit, outcome)
            work = by_point[unit.point]
            if not work.missing and not work.failures:
                assemble_point(work)


@lru_cache(maxsize=1)
def _load_inputs(path: Path) -> ScenarioInputs:
    """The inputs of a point; all processes of this host share the memory of their tables."""
    try:
        inputs: ScenarioInputs = read_shared(path)
    except FileNotFoundError:
        raise EnvironmentLacks(f"{path} is gone; start the same command again") from None
    return inputs


def _run_task(task: SweepUnit | PointWork) -> Exception | None:
    """Run a unit and store its result, or assemble a point; return the error of a unit."""
    if isinstance(task, PointWork):
        assemble_point(task)
        return None
    return _store_result(
        task, run_unit(task.spec, _load_inputs(task.inputs).runs[task.spec.variant])
    )


def _store_result(unit: SweepUnit, outcome: UnitResult) -> Exception | None:
    if isinstance(outcome.result, Exception):
        return outcome.result
    store(unit.result, outcome)
    return None


def assemble_point(work: PointWork) -> None:
    """Write the results folder of a point, as `wattkeeper run` would but for its page.

    The results of its units are removed then.
    """
    units: list[UnitResult] = [load(unit.result) for unit in work.units]
    runs = [unit.result for unit in units if not isinstance(unit.result, Exception)]
    result = conclude(work.point.loaded.scenario, _load_inputs(work.inputs), work.sources, runs)
    result.manifest["wall_s"] = sum(unit.wall_s for unit in units)
    result.save(work.done, with_page=False)
    for unit in work.units:
        unit.result.unlink(missing_ok=True)

"""Runs a sweep: unit by unit, in any order and on any machine, each kept as soon as it is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.inputs.policy_checks import located
from wattkeeper.scenarios.run.process_pool import each
from wattkeeper.scenarios.run.run import conclude
from wattkeeper.scenarios.run.unit import UnitResult, attempt
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.scenarios.sweep.cache import drop, held, keep, kept
from wattkeeper.scenarios.sweep.points import SweepPoint
from wattkeeper.scenarios.sweep.results import write_sweep
from wattkeeper.scenarios.sweep.work import PointWork, SweepUnit, prepare
from wattkeeper.sim.results.folder import work_folder

ERRORS: Final = "errors.txt"
"""Beside unfinished work: tracebacks of what was raised by mistake when the sweep ran last."""

Ran = Generator[tuple["SweepUnit | PointWork", "Exception | None"], None, None]


def run_sweep(
    found: Sequence[SweepPoint],
    results: Path,
    workers: int,
    ray: str | None,
    progress: Callable[[int, int], None],
    tell: Callable[[str], None],
) -> list[str]:
    """Run all points of a sweep that are not done yet, and write the results folder.

    Args:
        found: The points.
        results: The results folder; unfinished work is kept beside it.
        workers: Number of processes on this machine.
        ray: Address of the Ray cluster that does the runs instead.
        progress: Called with the number of finished runs and of all runs.
        tell: Called with a line that the user should know.

    Returns:
        A line for each run that failed, and one that says where tracebacks are, if there are any.
        If there is none, the folder of unfinished work is gone.

    Raises:
        WattkeeperError: If a point cannot run at all; nothing has run then.
    """
    folder = work_folder(results, "sweep")
    errors = folder / ERRORS
    with held(folder):
        errors.unlink(missing_ok=True)
        works = prepare(found, folder)
        total = sum(len(work.units) for work in works)
        left = sum(len(work.missing) for work in works)
        if left < total:
            tell(f"Goes on with {folder}: {total - left} of {total} runs are done.")
        progress(total - left, total)
        ran = _here(works, workers) if ray is None else _on_ray(works, ray)
        by_point = {work.point.id: work for work in works}
        try:
            with closing(ran):
                for unit, outcome in ran:
                    if isinstance(unit, SweepUnit):
                        _note(by_point[unit.point], unit, outcome, errors)
                        left -= 1
                        progress(total - left, total)
        except KeyboardInterrupt:
            tell(f"{total - left} of {total} runs are done; the same command goes on with them.")
            raise
        works.sort(key=lambda work: work.point.id)
        write_sweep(results, works)
        if not any(work.failures for work in works):
            drop(folder)
    failed = [_line(work, one) for work in works for one in work.failures.values()]
    return failed + [f"Where unexpected errors come from: {errors}"] * errors.exists()


def _line(work: PointWork, failure: Json) -> str:
    run = f"{failure['variant']}, seed {failure['seed']}"
    return f"{work.point.id} ({work.point}), {run}: {failure['message']}"


def _note(work: PointWork, unit: SweepUnit, outcome: Exception | None, errors: Path) -> None:
    """Take note of a unit that is over; the traceback of a mistake goes to the file of errors."""
    work.missing.discard(unit.result)
    if outcome is None:
        return
    variant, seed = unit.spec.variant, unit.spec.seed
    if isinstance(outcome, InputError | PolicyError):
        outcome = located(work.point.loaded, variant, outcome)
    failure = {"variant": variant, "seed": seed, "message": str(outcome)}
    work.failures[unit.result] = failure
    traceback = "".join(getattr(outcome, "__notes__", ()))
    if traceback:
        with errors.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{_line(work, failure)}\n{traceback}\n")


def _queue(works: Sequence[PointWork]) -> deque[SweepUnit | PointWork]:
    """What is missing; a point whose units are all there only has to be put together."""
    tasks: deque[SweepUnit | PointWork] = deque()
    for work in works:
        tasks += [unit for unit in work.units if unit.result in work.missing]
        if not work.missing and not work.done.exists():
            tasks.append(work)
    return tasks


def _here(works: Sequence[PointWork], workers: int) -> Ran:
    """Work in processes of this machine."""
    tasks = _queue(works)
    by_point = {work.point.id: work for work in works}
    with closing(each(tasks, _carry_out, min(workers, max(1, len(tasks))))) as ran:
        for task, outcome in ran:
            if isinstance(outcome, EnvironmentLacks) and isinstance(task, PointWork):
                raise EnvironmentLacks(f"results of {task.point}: {outcome}")
            yield task, outcome
            if isinstance(task, SweepUnit):
                work = by_point[task.point]
                if not work.missing and not work.failures:
                    tasks.appendleft(work)


def _on_ray(works: Sequence[PointWork], address: str) -> Ran:
    """Work on a Ray cluster; results come here, and here points are put together."""
    from wattkeeper.scenarios.run import ray_pool

    by_point = {work.point.id: work for work in works}
    tasks: deque[SweepUnit] = deque()
    for task in _queue(works):
        if isinstance(task, PointWork):
            put_together(task)
        else:
            tasks.append(task)
    with closing(ray_pool.each(tasks, _asks_for, lambda path: kept(path).run, address)) as ran:
        for unit, outcome in ran:
            yield unit, outcome if isinstance(outcome, Exception) else _kept_as(unit, outcome)
            work = by_point[unit.point]
            if not work.missing and not work.failures:
                put_together(work)


def _asks_for(unit: SweepUnit) -> tuple[RunSpec, Path]:
    return unit.spec, unit.inputs


_inputs: list[tuple[Path, Any]] = []
"""The inputs that this process read last."""


def _inputs_in(path: Path) -> Any:
    if not _inputs or _inputs[0][0] != path:
        _inputs[:] = [(path, kept(path))]
    return _inputs[0][1]


def _carry_out(task: SweepUnit | PointWork) -> Exception | None:
    """Run a unit and keep its result, or put a point together; what went wrong with a unit."""
    if isinstance(task, PointWork):
        put_together(task)
        return None
    return _kept_as(task, attempt(task.spec, _inputs_in(task.inputs).run))


def _kept_as(unit: SweepUnit, made: UnitResult) -> Exception | None:
    if isinstance(made.result, Exception):
        return made.result
    keep(unit.result, made)
    return None


def put_together(work: PointWork) -> None:
    """Write the results folder of a point, as `wattkeeper run` would but for its page.

    Its units go then.
    """
    made: list[UnitResult] = [kept(unit.result) for unit in work.units]
    runs = [one.result for one in made if not isinstance(one.result, Exception)]
    done = conclude(work.point.loaded.scenario, _inputs_in(work.inputs), work.sources, runs)
    done.manifest["wall_s"] = sum(one.wall_s for one in made)
    done.save(work.done, with_page=False)
    for unit in work.units:
        unit.result.unlink(missing_ok=True)

"""Runs a scenario: every variant with every seed, in this process or in several."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError
from wattkeeper.policies.json_types import Json
from wattkeeper.policies.profile import Objective
from wattkeeper.scenarios.analysis.manifest import LiveReport, Manifest, TraceProvenance
from wattkeeper.scenarios.analysis.run_columns import RunColumns
from wattkeeper.scenarios.analysis.times.deadlines import (
    WEIGHTS,
    DeadlineSavings,
    compare_deadlines,
)
from wattkeeper.scenarios.bounds.deadlines import bound_jobs, check_bound
from wattkeeper.scenarios.bounds.gpu_types import check_types, compare_least_energy
from wattkeeper.scenarios.inputs.run_inputs import InputsByVariant, ScenarioInputs
from wattkeeper.scenarios.kinds.kind import find_kind
from wattkeeper.scenarios.notebook.display import DisplayedStudy
from wattkeeper.scenarios.run.core import advise_compiling
from wattkeeper.scenarios.run.garbage import end_start
from wattkeeper.scenarios.run.manifest import list_sources, make_manifest
from wattkeeper.scenarios.run.policy_checks import check_policies, warn_estimates
from wattkeeper.scenarios.run.process_pool import run_tasks
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.run.unit import UnitResult, run_unit
from wattkeeper.scenarios.spec.cases import drop_cases
from wattkeeper.scenarios.spec.loading import LoadedScenario, locate_error
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.cluster_results.schemas import CLUSTER, TABLES
from wattkeeper.sim.cluster_results.tables import ClusterResult, charge_alike
from wattkeeper.sim.results.folder import check_folder, to_json, write_results
from wattkeeper.sim.results.parquet import (
    ScratchFolder,
    TableColumns,
    fill_optional,
    present_columns,
)
from wattkeeper.sim.results.summary import metric_values, summarise

if TYPE_CHECKING:
    from wattkeeper.live.controller.lifecycle import AttemptEnding
    from wattkeeper.live.controller.progress import AttemptProgress
    from wattkeeper.scenarios.run.live_equipment import Equipment


@dataclass(frozen=True, repr=False)
class ScenarioResult(DisplayedStudy):
    """A scenario's results, in memory.

    Attributes:
        results: All runs, by variant and seed in the scenario's order.
        summary_text: Text of `summary.json`.
    """

    results: list[ClusterResult]
    summary: Json
    manifest: Manifest
    summary_text: str

    @override
    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        if name == "metrics":
            whole = metric_values(self.results)
            return whole if columns is None else whole.select(list(columns))
        tables = [result.tables[name] for result in self.results if name in result.tables]
        if not tables:
            raise InputError(f"there is no table {name!r}: the scenario has no zoo")
        schema = present_columns(TABLES[name], tables)
        if columns is not None:
            schema = pa.schema([TABLES[name].field(column) for column in columns])
        return pa.concat_tables([fill_optional(table, schema).cast(schema) for table in tables])

    @override
    def runs(
        self, name: str, columns: Sequence[str] | None = None, *, first_seed: bool = False
    ) -> Iterator[RunColumns]:
        seen: set[str] = set()
        for result in self.results:
            table = result.tables.get(name)
            if table is None or not len(table) or (first_seed and result.variant in seen):
                continue
            seen.add(result.variant)
            names = table.column_names if columns is None else columns
            schema = pa.schema([TABLES[name].field(column) for column in names])
            yield RunColumns(result.variant, result.seed, TableColumns(table, schema))

    def save(self, folder: str | Path, with_page: bool = True) -> None:
        """Write the results folder, in the place of older results.

        With `with_page`, it writes `report.html` too, which takes a tenth of a second.

        Raises:
            InputError: If the folder holds anything but results.
        """
        from wattkeeper.scenarios.report import render_page

        check_folder(Path(folder), CLUSTER)
        gc.collect()  # worlds refer to themselves, and to their jobs
        pa.default_memory_pool().release_unused()
        text = render_page(self) if with_page else ""
        write_results(Path(folder), self.results, self.summary_text, self.manifest, text)


def run(
    loaded: LoadedScenario,
    workers: int = 1,
    progress: Callable[[int, int, str], None] = lambda done, all_, at_work: None,
    trainings: Path = Path("trainings"),
    live: Path | None = None,
    ray: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
    watch: Callable[[RunSpec, AttemptProgress], None] = lambda spec, attempt: None,
    known: Sequence[ClusterResult] = (),
    scratch: Path | None = None,
    check: bool = False,
) -> ScenarioResult:
    """Run all variants with all seeds. The results do not depend on `workers`.

    Args:
        loaded: The scenario.
        workers: Number of processes on this machine.
        progress: Called with the number of finished runs, of all runs, and the variant and seed of
            the first that is not finished; empty after the last.
        trainings: Folder of what is trained for real, where an interrupted run resumes.
        live: Folder of live runs, where interrupted ones resume; None: they are simulated.
        ray: Address of the Ray cluster that does the runs, instead of this machine.
        tell: Called with a line that the user should know before or while it runs.
        watch: Called with what each attempt of a live run does.
        known: Results of simulated runs of this scenario, which do not run again.
        scratch: Folder for the rows and tables of large runs on this machine, which are there as
            long as the results are used; None: they are in memory.
        check: Whether to check all laws of `wattkeeper.sim.cluster_results.laws` after each run.

    Raises:
        WattkeeperError: If input is wrong or a policy chose what is not allowed.
    """
    began = time.perf_counter()
    if live is not None:
        loaded = loaded._replace(scenario=drop_cases(loaded.scenario))
    scenario = loaded.scenario
    specs = loaded.runs
    inputs = read_inputs(loaded, live=live is not None)
    inputs = inputs.update_runs(trainings=trainings, checked=check)
    check_policies(loaded, inputs)
    if scenario.bound == "types":
        check_types(loaded, inputs.runs)
    else:
        check_bound(loaded, inputs.any_run)
    if warning := warn_estimates(loaded, inputs):
        tell(warning)
    if scratch is not None and ray is None:
        inputs = inputs.update_runs(scratch=ScratchFolder(scratch, final=len(specs) == 1))
    end_start()
    kind = find_kind(scenario.workload.kind)
    if note := kind.begin(specs, inputs.any_run, workers, ray):
        tell(note)
    endings: list[tuple[RunSpec, list[AttemptEnding]]] = []
    if live is None:
        jobs = sum(inputs.runs[spec.variant.name].job_count for spec in specs)
        if advice := advise_compiling(jobs):
            tell(advice)
        runs = _run_units(specs, inputs.runs, workers, ray, known)
    else:
        from wattkeeper.scenarios.run import live_equipment, live_folder, live_results, live_run

        equipment = live_equipment.equip(loaded, inputs.runs, live, ray)
        host = None if equipment.host is None else equipment.host._asdict()
        if live_folder.open_folder(loaded, live, host) and live_run.has_begun(specs, live):
            tell(f"Goes on with the unfinished run in {live}.")
        runs = _run_live(specs, inputs.runs, equipment, endings, watch, tell)
    results: list[ClusterResult] = []
    progress(0, len(specs), _describe_next(specs, 0))
    try:
        for result in runs:
            results.append(result)
            progress(len(results), len(specs), _describe_next(specs, len(results)))
    except (InputError, PolicyError) as error:
        raise locate_error(loaded, specs[len(results)].variant.name, error) from None
    if check:
        tell(f"Laws of conservation: {count(len(results), 'run')} kept them.")
    if live is None:
        report = kind.report(specs, inputs.any_run)
    else:
        report = live_results.report(equipment, endings, inputs.runs)
    sources = list_sources(inputs)
    concluded = conclude(scenario, inputs, sources, results, report)
    concluded.manifest["wall_s"] = time.perf_counter() - began
    return concluded


def _describe_next(specs: Sequence[RunSpec], finished: int) -> str:
    if finished == len(specs):
        return ""
    return f"{specs[finished].variant.name}, seed {specs[finished].seed}"


def conclude(
    scenario: Scenario,
    inputs: ScenarioInputs,
    sources: Sequence[TraceProvenance],
    results: list[ClusterResult],
    live: LiveReport | None = None,
) -> ScenarioResult:
    """Summary and manifest of all runs of a scenario, given in its order."""
    baselines = {
        name: variant.baseline or scenario.baseline for name, variant in scenario.variants.items()
    }
    etas = {
        name: (variant.objective or scenario.objective).eta
        for name, variant in scenario.variants.items()
    }
    tariffs = {name: inputs.runs[name].tariff for name in scenario.variants}
    results = charge_alike(results, tariffs)
    if scenario.accounting.model_fields_set:
        _check_window(results)
    summary = summarise(results, baselines, etas)
    find_kind(scenario.workload.kind).add_to_summary(summary, results, scenario.baseline)
    compared = _compare_deadlines(scenario, inputs, results, baselines)
    if compared is not None:
        summary["deadlines"] = compared
    if scenario.bound == "types":
        summary["types"] = compare_least_energy(results, inputs.runs)
    if scenario.league is not None:
        from wattkeeper.scenarios.analysis.learning.league import compare_bandits

        profiles, objective = inputs.any_run.profiles, Objective(scenario.objective.eta)
        summary["league"] = compare_bandits(
            results, profiles, scenario.league, scenario.baseline, objective
        )
    text = to_json(summary)
    manifest = make_manifest(scenario, inputs, sources, results, text, live)
    return ScenarioResult(results, summary, manifest, text)


def _compare_deadlines(
    scenario: Scenario,
    inputs: ScenarioInputs,
    results: Sequence[ClusterResult],
    baselines: Mapping[str, str],
) -> DeadlineSavings | None:
    """What jobs with deadlines save: of the bound's weight, else of the first rate stated.

    Recurrences that are submitted when the one before finishes have other hours in each variant,
    and are not compared.
    """
    if inputs.any_run.jobs is None and not inputs.any_run.every_s:
        return None
    weight, least = None if scenario.bound == "types" else scenario.bound, None
    if weight is not None:
        runs = inputs.runs
        own = next((run for run in runs.values() if run.limits), runs[scenario.baseline])
        cases = {variant.boundness or "middle" for variant in scenario.variants.values()}
        holds = scenario.pauses == "hold"
        tables = [result.tables["jobs"]["batch_size"] for result in results]
        sizes = set(pc.unique(pa.chunked_array(chain(*(t.chunks for t in tables)))).to_pylist())
        least = {
            (result.seed, job): amount
            for result in results
            if result.variant == scenario.baseline
            for job, amount in bound_jobs(
                result.tables["jobs"], sizes, own, weight, holds, cases
            ).items()
        }
    rates = inputs.any_run.tariff.rates
    stated = next((name for name, column in WEIGHTS.items() if column in rates), "energy")
    return compare_deadlines(results, baselines, scenario.baseline, weight or stated, least)


def _check_window(results: Sequence[ClusterResult]) -> None:
    """Refuse a window in which nothing happens."""
    if any(result.account.gpu_s for result in results):
        return
    from_s, until_s = results[0].account.window
    last_s = max(result.ended_s for result in results)
    raise InputError(
        f"accounting: no job holds GPUs from {from_s:g} to {until_s:g} s; the runs end at "
        f"{last_s:g} s"
    )


def _run_units(
    specs: Sequence[RunSpec],
    inputs: InputsByVariant,
    workers: int,
    ray: str | None,
    known: Sequence[ClusterResult],
) -> Iterator[ClusterResult]:
    """Results in the order of their runs; the first error in that order is raised."""
    finished = {(result.variant, result.seed): UnitResult(result, 0.0) for result in known}
    tasks: deque[tuple[int, RunSpec]] = deque()
    outcomes_known: list[tuple[tuple[int, RunSpec], UnitResult]] = []
    for task in enumerate(specs):
        done = finished.get((task[1].variant.name, task[1].seed))
        if done is None:
            tasks.append(task)
        else:
            outcomes_known.append((task, done))
    if ray is None:
        outcomes = run_tasks(tasks, partial(_run_task, inputs), min(workers, len(specs)))
    else:
        from wattkeeper.scenarios.run import ray_pool

        outcomes = ray_pool.run_tasks(tasks, lambda task: (task[1], None), lambda _: inputs, ray)
    results: dict[int, ClusterResult | Exception] = {}
    following = 0
    with closing(outcomes):
        for (number, spec), outcome in chain(outcomes_known, outcomes):
            results[number] = (
                outcome.result
                if isinstance(outcome, UnitResult)
                else EnvironmentLacks(f"variant {spec.variant.name!r}, seed {spec.seed}: {outcome}")
            )
            if isinstance(results[number], Exception):
                tasks.clear()  # those before it are under way
            while following in results:
                result = results.pop(following)
                if isinstance(result, Exception):
                    raise result
                yield result
                following += 1


def _run_live(
    specs: Sequence[RunSpec],
    inputs: InputsByVariant,
    equipment: Equipment,
    endings: list[tuple[RunSpec, list[AttemptEnding]]],
    watch: Callable[[RunSpec, AttemptProgress], None],
    tell: Callable[[str], None],
) -> Iterator[ClusterResult]:
    """Results of live runs, one after the other; the endings of their attempts are appended."""
    from wattkeeper.scenarios.run import live_run

    for spec in specs:
        result, of_run = live_run.execute(
            spec, inputs[spec.variant.name], equipment, watch=partial(watch, spec), tell=tell
        )
        endings.append((spec, of_run))
        yield result


def _run_task(inputs: InputsByVariant, task: tuple[int, RunSpec]) -> UnitResult:
    return run_unit(task[1], inputs[task[1].variant.name])

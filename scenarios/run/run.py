"""Runs a scenario: every variant with every seed, in this process or in several."""

from __future__ import annotations

import platform
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError
from wattkeeper.scenarios.analysis.savings import savings
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.inputs.policy_checks import check_policies, located
from wattkeeper.scenarios.inputs.read import RunInputs, read_inputs
from wattkeeper.scenarios.run import search_run
from wattkeeper.scenarios.run.process_pool import each
from wattkeeper.scenarios.run.unit import UnitResult, attempt, software_versions
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.variants import RunSpec, run_specs
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.engine.warm_start import shipped
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.sim.results.folder import check_folder, digest_results, write_results
from wattkeeper.sim.results.schemas import TABLES
from wattkeeper.sim.results.summary import metric_values, summarise
from wattkeeper.sim.results.tables import RunResult
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    from wattkeeper.live.controller.progress import AttemptProgress
    from wattkeeper.scenarios.run.live_run import Equipment


@dataclass(frozen=True)
class ScenarioResult(Study):
    """A scenario's results, in memory.

    Attributes:
        results: All runs, by variant and seed in the scenario's order.
    """

    results: list[RunResult]
    summary: dict[str, Any]
    manifest: dict[str, Any]

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """See `Study.table`."""
        if name == "metrics":
            whole = metric_values(self.results)
            return whole if columns is None else whole.select(list(columns))
        kept = list(columns or TABLES[name].names)
        schema = pa.schema([TABLES[name].field(column) for column in kept])
        tables = [result.tables[name] for result in self.results if name in result.tables]
        if not tables:
            raise InputError(f"there is no table {name!r}: the scenario has no zoo")
        return pa.concat_tables([table.select(kept).cast(schema) for table in tables])

    def save(self, folder: str | Path, with_page: bool = True) -> None:
        """Write the results folder; see `wattkeeper.sim.results.folder.write_results`.

        Args:
            folder: Where.
            with_page: Whether to write `report.html` too, which takes a tenth of a second.
        """
        from wattkeeper.scenarios.report import render_page

        check_folder(Path(folder))
        text = render_page(self) if with_page else ""
        write_results(Path(folder), self.results, self.summary, self.manifest, text)


def run(
    loaded: LoadedScenario,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, all_: None,
    trainings: Path = Path("trainings"),
    live: Path | None = None,
    ray: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
    watch: Callable[[RunSpec, AttemptProgress], None] = lambda spec, seen: None,
) -> ScenarioResult:
    """Run all variants with all seeds. The results do not depend on `workers`.

    Args:
        loaded: The scenario.
        workers: Number of processes on this machine.
        progress: Called with the number of finished runs and of all runs.
        trainings: Folder of what is trained for real, where an interrupted run goes on.
        live: Folder of live runs, where interrupted ones go on; None: they are simulated.
        ray: Address of the Ray cluster that does the runs, instead of this machine.
        tell: Called with a line that the user should know before it runs.
        watch: Called with what each attempt of a live run does.

    Raises:
        WattkeeperError: If input is wrong or a policy chose what is not allowed.
    """
    began = time.perf_counter()
    scenario = loaded.scenario
    inputs = read_inputs(loaded, live=live is not None)._replace(folder=trainings)
    check_policies(loaded, inputs)
    if inputs.search is not None:
        if ray is not None:
            raise InputError("a search (workload.kind) trains on this machine: leave out --ray")
        search_run.check_alone(inputs.cluster, workers)
        if kept := len(search_run.logs(trainings, run_specs(scenario))):
            tell(f"Goes on with {count(kept, 'training')} in {trainings}.")
    of_live: dict[str, Any] = {}
    specs = run_specs(scenario)
    results: list[RunResult] = []
    if live is not None:
        equipment = _equipment(loaded, inputs, live, ray, tell)
        ran = _live_results(specs, inputs, loaded, equipment, of_live, watch)
    else:
        ran = _results(specs, inputs, workers, ray)
    progress(0, len(specs))
    try:
        for result in ran:
            results.append(result)
            progress(len(results), len(specs))
    except (InputError, PolicyError) as error:
        raise located(loaded, specs[len(results)].variant, error) from None
    done = conclude(scenario, inputs, [provenance(trace) for trace in inputs.traces], results)
    if inputs.search is not None:
        of_live = search_run.about(trainings, specs, inputs.cluster)
        done.manifest["versions"] |= search_run.software_versions()
    if of_live:
        done.manifest.update({"backend": "live", "live": of_live})
    done.manifest["wall_s"] = time.perf_counter() - began
    return done


def conclude(
    scenario: Scenario,
    inputs: RunInputs,
    sources: Sequence[dict[str, Any]],
    results: list[RunResult],
) -> ScenarioResult:
    """What all runs of a scenario come to.

    Args:
        scenario: The scenario.
        inputs: What they read.
        sources: Where that comes from: the `provenance` of each trace.
        results: All runs, in the scenario's order.
    """
    baselines = {
        name: variant.baseline or scenario.baseline for name, variant in scenario.variants.items()
    }
    etas = {name: (variant.objective or scenario.objective).eta
            for name, variant in scenario.variants.items()}  # fmt: skip
    summary = summarise(results, baselines, etas)
    if inputs.search is not None:
        summary["saved"] = savings(results, scenario.baseline)
    return ScenarioResult(results, summary, _manifest(scenario, inputs, sources, results, summary))


def _results(
    specs: Sequence[RunSpec], inputs: RunInputs, workers: int, ray: str | None
) -> Iterator[RunResult]:
    """Results in the order of their runs; the first error in that order is raised."""
    left = deque(enumerate(specs))
    if ray is None:
        ran = each(left, partial(_attempt, inputs), min(workers, len(specs)))
    else:
        from wattkeeper.scenarios.run import ray_pool

        ran = ray_pool.each(left, lambda task: (task[1], None), lambda _: inputs, ray)
    there: dict[int, RunResult | Exception] = {}
    following = 0
    with closing(ran):
        for (number, spec), outcome in ran:
            there[number] = (
                outcome.result
                if isinstance(outcome, UnitResult)
                else EnvironmentLacks(f"variant {spec.variant!r}, seed {spec.seed}: {outcome}")
            )
            if isinstance(there[number], Exception):
                left.clear()  # those before it are under way
            while following in there:
                result = there.pop(following)
                if isinstance(result, Exception):
                    raise result
                yield result
                following += 1


def _attempt(inputs: RunInputs, task: tuple[int, RunSpec]) -> UnitResult:
    return attempt(task[1], inputs)


def _equipment(
    loaded: LoadedScenario,
    inputs: RunInputs,
    folder: Path,
    ray: str | None,
    tell: Callable[[str], None],
) -> Equipment:
    """What live runs use; what is wrong with the scenario as a whole is said of no variant."""
    from wattkeeper.scenarios.run import live_run

    equipment = live_run.equip(loaded, inputs, folder, ray)
    if live_run.begin(loaded, folder):
        tell(f"Goes on with the unfinished run in {folder}.")
    return equipment


def _live_results(
    specs: Sequence[RunSpec],
    inputs: RunInputs,
    loaded: LoadedScenario,
    equipment: Equipment,
    of_live: dict[str, Any],
    watch: Callable[[RunSpec, AttemptProgress], None],
) -> Iterator[RunResult]:
    """Run live, one after the other; what the manifest says of it goes into `of_live`."""
    from wattkeeper.scenarios.run import live_run

    endings = []
    for spec in specs:
        result, ended = live_run.execute(
            spec, inputs, loaded, equipment, watch=partial(watch, spec)
        )
        endings.append((spec, ended))
        yield result
    of_live |= live_run.about(equipment, endings)


def _manifest(
    scenario: Scenario,
    inputs: RunInputs,
    sources: Sequence[dict[str, Any]],
    results: Sequence[RunResult],
    summary: dict[str, Any],
) -> dict[str, Any]:
    resolved = scenario.model_dump_json()
    ends = [table["time_s"][-1].as_py() for table in (r.tables["timeline"] for r in results)]
    return {
        "scenario": scenario.model_dump(mode="json", exclude_none=True),
        "scenario_digest": sha256(resolved.encode()).hexdigest(),
        "seeds": list(scenario.all_seeds),
        "backend": "sim",
        "inputs": list(sources),
        "dropped_jobs": dict(inputs.dropped),
        "ignored_gpu_types": dict(inputs.ignored),
        "mapping": [dict(row) for row in inputs.mapping],
        "modelled": modelled(inputs, results),
        "results_digest": digest_results(results, summary),
        "jobs": sum(int(result.metrics["jobs"]) for result in results),
        "attempts": sum(int(result.metrics["attempts"]) for result in results),
        "events": sum(result.events for result in results),
        "simulated_s": sum(ends),
        "versions": software_versions(),
        "host": {"name": socket.gethostname(), "platform": platform.platform()},
    }


def modelled(inputs: RunInputs, results: Sequence[RunResult]) -> list[str]:
    """What of the input nobody recorded."""
    if inputs.search is not None:
        return []
    found = ["idle power of GPUs"]
    if any("duration" in result.by["replayed"] for result in results):
        found.append("power of GPUs that run jobs without a profile (busy_power_w)")
    if inputs.cluster.sleep_after_s is not None:
        found.append("power and waking of sleeping nodes")
    if inputs.cluster.pue != 1:
        found.append("power usage effectiveness")
    if inputs.mapping:
        found.append("workloads of the jobs")
    if inputs.timed:
        found.append(f"durations of {inputs.timed} jobs (workload.durations)")
    if any("models" in result.tables for result in results):
        warm = shipped()
        what = "placeholder, not measured" if warm.placeholder else warm.source
        found.append(f"training time saved by parents, and accuracies (warm_start.json: {what})")
        found.append("accuracies from scratch where the trace has none (zoo.accuracy)")
    return found


def provenance(trace: Trace) -> dict[str, Any]:
    """Where a trace comes from, and the digest of its content."""
    return {
        "trace": trace.name,
        "kind": trace.kind,
        "format": trace.format,
        "origin": trace.origin,
        "source": trace.source,
        "licence": trace.licence,
        "sha256": dict(trace.inputs),
        "parameters": dict(trace.parameters),
        "content": digest_tables(trace.tables),
    }

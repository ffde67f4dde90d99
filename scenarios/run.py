"""Runs a scenario: every variant with every seed, in this process or in several."""

from __future__ import annotations

import os
import platform
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError
from wattkeeper.scenarios.arrow import settle
from wattkeeper.scenarios.assemble import (
    Inputs,
    RunSpec,
    execute,
    read_inputs,
    run_specs,
)
from wattkeeper.scenarios.check import check_policies, located
from wattkeeper.scenarios.loading import Loaded
from wattkeeper.scenarios.schema import Scenario
from wattkeeper.scenarios.searches import savings
from wattkeeper.scenarios.study import Study
from wattkeeper.sim.results import (
    TABLES,
    RunResult,
    check_folder,
    digest,
    digest_tables,
    metric_values,
    summarise,
    write,
)
from wattkeeper.sim.warm_start import shipped
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    from wattkeeper.scenarios.live import Equipment

LIBRARIES = ("wattkeeper", "numpy", "pandas", "pyarrow", "pydantic", "simpy")


@dataclass(frozen=True)
class Done(Study):
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
        """Write the results folder; see `wattkeeper.sim.results.write`.

        Args:
            folder: Where.
            with_page: Whether to write `report.html` too, which takes a tenth of a second.
        """
        from wattkeeper.scenarios.report import page

        check_folder(Path(folder))
        text = page(self) if with_page else ""
        write(Path(folder), self.results, self.summary, self.manifest, text)


def run(
    loaded: Loaded,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, all_: None,
    trainings: Path = Path("trainings"),
    live: Path | None = None,
    ray: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Done:
    """Run all variants with all seeds. The results do not depend on `workers`.

    Args:
        loaded: The scenario.
        workers: Number of processes.
        progress: Called with the number of finished runs and of all runs.
        trainings: Folder of what is trained for real, where an interrupted run goes on.
        live: Folder of live runs, where interrupted ones go on; None: they are simulated.
        ray: Address of the Ray cluster that live runs use.
        tell: Called with a line that the user should know before it runs.

    Raises:
        WattkeeperError: If input is wrong or a policy chose what is not allowed.
    """
    began = time.perf_counter()
    scenario = loaded.scenario
    inputs = read_inputs(loaded, live=live is not None)._replace(folder=trainings)
    check_policies(loaded, inputs)
    of_live: dict[str, Any] = {}
    specs = run_specs(scenario)
    results: list[RunResult] = []
    ran = _results(specs, inputs, workers)
    if live is not None:
        equipment = _equipment(loaded, inputs, live, ray, tell)
        ran = _live_results(specs, inputs, loaded, equipment, of_live)
    progress(0, len(specs))
    try:
        for result in ran:
            results.append(result)
            progress(len(results), len(specs))
    except (InputError, PolicyError) as error:
        raise located(loaded, specs[len(results)].variant, error) from None
    baselines = {
        name: variant.baseline or scenario.baseline for name, variant in scenario.variants.items()
    }
    etas = {spec.variant: spec.rules.objective.eta for spec in specs}
    summary = summarise(results, baselines, etas)
    if inputs.search is not None:
        summary["saved"] = savings(results, scenario.baseline)
    manifest = _manifest(scenario, inputs, results, summary)
    if live is not None:
        manifest |= {"backend": "live", "live": of_live}
    manifest["wall_s"] = time.perf_counter() - began
    return Done(results, summary, manifest)


_inputs: Inputs | None = None


def _start_worker(inputs: Inputs) -> None:
    """Take the inputs once, and do not outlive the parent."""
    global _inputs
    settle()
    Thread(target=_end_with_parent, daemon=True).start()
    _inputs = inputs


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _execute(spec: RunSpec) -> RunResult:
    assert _inputs is not None
    return execute(spec, _inputs)


def _results(specs: Sequence[RunSpec], inputs: Inputs, workers: int) -> Iterator[RunResult]:
    if workers == 1 or len(specs) == 1:
        for spec in specs:
            yield execute(spec, inputs)
        return
    with ProcessPoolExecutor(
        min(workers, len(specs)), get_context("spawn"), _start_worker, (inputs,)
    ) as pool:
        try:
            with _uninterrupted():
                results = pool.map(_execute, specs)
            yield from results
        except BrokenProcessPool:
            raise EnvironmentLacks(
                "a worker process was killed, perhaps for want of memory; try fewer --workers"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that start inside leave an interruption to the parent, which gets it afterwards.

    They inherit the blocked signal. Another thread of the parent may still take it, so its handler
    waits too.
    """
    if current_thread() is not main_thread():
        yield
        return
    taken: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: taken.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
    if taken:
        raise KeyboardInterrupt


def _equipment(
    loaded: Loaded, inputs: Inputs, folder: Path, ray: str | None, tell: Callable[[str], None]
) -> Equipment:
    """What live runs use; what is wrong with the scenario as a whole is said of no variant."""
    from wattkeeper.scenarios import live

    equipment = live.equip(loaded, inputs, folder, ray)
    if live.begin(loaded, folder):
        tell(f"Goes on with the unfinished run in {folder}.")
    return equipment


def _live_results(
    specs: Sequence[RunSpec],
    inputs: Inputs,
    loaded: Loaded,
    equipment: Equipment,
    of_live: dict[str, Any],
) -> Iterator[RunResult]:
    """Run live, one after the other; what the manifest says of it goes into `of_live`."""
    from wattkeeper.scenarios import live

    endings = []
    for spec in specs:
        result, ended = live.execute(spec, inputs, loaded, equipment)
        endings.append((spec, ended))
        yield result
    of_live |= live.about(equipment, endings)


def _manifest(
    scenario: Scenario, inputs: Inputs, results: Sequence[RunResult], summary: dict[str, Any]
) -> dict[str, Any]:
    resolved = scenario.model_dump_json()
    ends = [table["time_s"][-1].as_py() for table in (r.tables["timeline"] for r in results)]
    return {
        "scenario": scenario.model_dump(mode="json", exclude_none=True),
        "scenario_digest": sha256(resolved.encode()).hexdigest(),
        "seeds": list(scenario.all_seeds),
        "backend": "sim" if inputs.search is None else "live",
        "inputs": [_provenance(trace) for trace in inputs.traces],
        "dropped_jobs": dict(inputs.dropped),
        "ignored_gpu_types": dict(inputs.ignored),
        "mapping": [dict(row) for row in inputs.mapping],
        "modelled": modelled(inputs, results),
        "results_digest": digest(results, summary),
        "jobs": sum(int(result.metrics["jobs"]) for result in results),
        "attempts": sum(int(result.metrics["attempts"]) for result in results),
        "events": sum(result.events for result in results),
        "simulated_s": sum(ends),
        "versions": {"python": platform.python_version()}
        | {library: version(library) for library in LIBRARIES},
        "host": {"name": socket.gethostname(), "platform": platform.platform()},
    }


def modelled(inputs: Inputs, results: Sequence[RunResult]) -> list[str]:
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


def _provenance(trace: Trace) -> dict[str, Any]:
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

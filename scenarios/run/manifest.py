"""Makes the manifest of a scenario's results."""

from __future__ import annotations

import platform
import socket
from collections.abc import Iterator, Sequence
from hashlib import sha256

import numpy as np
import pyarrow as pa

from wattkeeper.scenarios.analysis.logged.load import bin_load
from wattkeeper.scenarios.analysis.logged.waits import WaitPart, compare_waits
from wattkeeper.scenarios.analysis.manifest import (
    LiveReport,
    Manifest,
    TariffReport,
    TraceProvenance,
)
from wattkeeper.scenarios.analysis.times.job_times import JobTimes, compare_times
from wattkeeper.scenarios.inputs.electricity import currency_of
from wattkeeper.scenarios.inputs.energy_sources import share_sources
from wattkeeper.scenarios.inputs.measured_power import measured_power
from wattkeeper.scenarios.inputs.profiled_jobs import add_baseline
from wattkeeper.scenarios.inputs.run_inputs import ScenarioInputs, SourceFile
from wattkeeper.scenarios.kinds.kind import WorkloadKind, find_kind
from wattkeeper.scenarios.run.unit import software_versions
from wattkeeper.scenarios.spec.case_names import base_of
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.sections.electricity import ElectricitySection, RateFile
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.cluster_results.accounting import CARBON, COST, Tariff, Window
from wattkeeper.sim.cluster_results.attribution import find_owner_column
from wattkeeper.sim.cluster_results.tables import ClusterResult
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.sim.results.folder import digest_results
from wattkeeper.traces.electricity.charges import Rate
from wattkeeper.traces.electricity.series import Series
from wattkeeper.traces.tables import drop_optional
from wattkeeper.traces.trace import Trace


def make_manifest(
    scenario: Scenario,
    inputs: ScenarioInputs,
    sources: Sequence[TraceProvenance],
    results: Sequence[ClusterResult],
    summary: str,
    live: LiveReport | None,
) -> Manifest:
    """The manifest, but for `wall_s`.

    `summary`: text of `summary.json`. Without a report of what trained, runs were simulated.
    """
    kind, resolved = find_kind(scenario.workload.kind), scenario.model_dump_json()
    measured = int(np.sum(~np.isnan(measured_power(inputs.any_run.jobs))))
    versions = software_versions(*kind.libraries)
    window_by_seed = {result.seed: result.account.window for result in results}
    manifest: Manifest = {
        "scenario": scenario.model_dump(mode="json", exclude_none=True),
        "scenario_digest": sha256(resolved.encode()).hexdigest(),
        "seeds": list(scenario.all_seeds),
        "backend": "sim" if live is None else "live",
        "inputs": list(sources),
        "dropped_jobs": dict(inputs.dropped),
        "ignored_gpu_types": dict(inputs.ignored),
        "mapping": [dict(row) for row in inputs.mapping],
        "modelled": _list_modelled(inputs, kind, results, measured),
        "windows": [window_by_seed[seed] for seed in scenario.all_seeds],
        "results_digest": digest_results(results, summary),
        "jobs": sum(int(result.metrics["jobs"]) for result in results),
        "attempts": sum(int(result.metrics["attempts"]) for result in results),
        "events": sum(result.events for result in results),
        "simulated_s": sum(result.ended_s for result in results),
        "versions": versions,
        "host": {"name": socket.gethostname(), "platform": platform.platform()},
    }
    manifest["modelled"] += _list_fallbacks(live)
    if inputs.dropped_for:
        manifest["dropped_for"] = {
            variants: dict(reasons) for variants, reasons in inputs.dropped_for.items()
        }
    if scenario.electricity is not None:
        window = results[0].account.window
        manifest["electricity"] = {
            name: _describe_tariff(
                scenario.variants[name].electricity or scenario.electricity,
                inputs.runs[name].tariff,
                window,
            )
            for name in scenario.variants
        }
    if inputs.profiled is not None:
        manifest["profiled"] = add_baseline(inputs.profiled, results, scenario.baseline)
    if inputs.measured is not None:
        manifest["measured"] = inputs.measured
    if live is None and inputs.any_run.jobs is not None:
        own = [result for result in results if result.variant == scenario.baseline]
        cluster = inputs.runs[scenario.baseline].cluster
        if energy := share_sources(inputs.any_run.jobs, cluster, own):
            manifest["energy_sources"] = energy
    if waits := _compare_waits(inputs, results, scenario.all_seeds[0]):
        manifest["waits"] = waits
        last_s = max(result.ended_s for result in results)
        if not inputs.timed and (load := bin_load(inputs.any_run.jobs, last_s)):
            manifest["recorded_load"] = load
    if times := _compare_times(scenario, inputs, results):
        manifest["job_times"] = times
    if any("usage" in result.tables for result in results):
        manifest["usage"] = find_owner_column(inputs.any_run.jobs)
    if live is not None:
        manifest["live"] = live
    return manifest


def _compare_waits(
    inputs: ScenarioInputs, results: Sequence[ClusterResult], seed: int
) -> list[WaitPart]:
    """Recorded and simulated waits, where arrivals are those of the log; of one seed."""
    jobs = inputs.any_run.jobs
    if jobs is None or jobs["start_time_s"].null_count == jobs.num_rows:
        return []
    return compare_waits(jobs, _read_attempts(inputs, results, seed))


def _read_attempts(
    inputs: ScenarioInputs, results: Sequence[ClusterResult], seed: int
) -> dict[str, pa.Table]:
    """Attempts of the runs of a seed whose jobs are submitted when those of the trace were."""
    return {
        result.variant: result.tables["jobs"]
        for result in results
        if result.seed == seed and inputs.runs[result.variant].load == 1
    }


def _compare_times(
    scenario: Scenario, inputs: ScenarioInputs, results: Sequence[ClusterResult]
) -> JobTimes | None:
    """Times of the jobs of a trace under each variant; of the first seed."""
    jobs = inputs.any_run.jobs
    if jobs is None or len(scenario.variants) < 2:
        return None
    baselines = {
        name: variant.baseline or scenario.baseline for name, variant in scenario.variants.items()
    }
    attempts = _read_attempts(inputs, results, scenario.all_seeds[0])
    return compare_times(jobs, attempts, baselines)


def _describe_tariff(section: ElectricitySection, tariff: Tariff, window: Window) -> TariffReport:
    """The part of the manifest on the tariff of a variant; the window is the first seed's."""
    report: TariffReport = {"origin_s": tariff.origin_s, "notes": []}
    price, carbon = (tariff.rates.get(metric) for metric in (COST, CARBON))
    if price is not None:
        report["currency"] = currency_of(section, price)
        report["price"] = _describe_rate(price, section.price, f"{report['currency']}/kWh")
    if carbon is not None:
        report["carbon"] = _describe_rate(carbon, section.carbon, "g/kWh")
    for rate in (price, carbon):
        if isinstance(rate, Series):
            from_s, until_s = (tariff.origin_s + border for border in window)
            report["notes"] += rate.describe_use(from_s, until_s)
    return report


def _describe_rate(rate: Rate, stated: float | RateFile | None, unit: str) -> str:
    """A number, or a series with its file as the scenario names it."""
    if not isinstance(rate, Series):
        return f"{rate:g} {unit}"
    name = stated.file if isinstance(stated, RateFile) else rate.source
    return f"{rate.kind} {name}, in {rate.unit}".strip()


def list_sources(inputs: ScenarioInputs) -> list[TraceProvenance]:
    """Where all inputs come from."""
    return [*map(provenance, inputs.traces), *map(_file_provenance, inputs.files)]


def _file_provenance(file: SourceFile) -> TraceProvenance:
    return {
        "trace": file.name,
        "kind": file.kind,
        "format": file.format,
        "origin": file.origin,
        "source": "",
        "licence": "",
        "sha256": dict(file.sha256),
        "parameters": dict(file.parameters),
        "content": file.content,
    }


def provenance(trace: Trace) -> TraceProvenance:
    """Where a trace comes from, what is to be known of it, and the digest of its content."""
    return {
        "trace": trace.name,
        "kind": trace.kind,
        "format": trace.format,
        "origin": trace.origin,
        "source": trace.source,
        "licence": trace.licence,
        "sha256": dict(trace.inputs),
        "parameters": dict(trace.parameters),
        "notes": list(trace.notes),
        "content": digest_tables(
            {name: drop_optional(table, table.schema) for name, table in trace.tables.items()}
        ),
    }


def _list_busy_power(jobs: pa.Table | None, measured: int) -> list[str]:
    """What models the power of jobs without a profile; nothing where that of all was measured."""
    if jobs is None or not measured:
        return ["power of GPUs that run jobs without a profile (busy_power_w)"]
    rest = jobs["workload"].null_count - measured
    what = f"power of GPUs that run {rest:,} of {len(jobs):,} jobs, which have neither a profile "
    return [f"{what}nor measured energy (busy_power_w)"] if rest else []


def _list_adjusted(inputs: ScenarioInputs) -> Iterator[str]:
    """What a scenario changes in recorded profiles."""
    profiles = [
        profile
        for run in inputs.runs.values()
        for profile in run.profiles.values()
        if profile.pipeline is None
    ]
    if any(curve.interpolated for profile in profiles for curve in profile.curves.values()):
        yield "power and speed between recorded power limits, interpolated (workload.interpolate_w)"
    stated = {
        profile.fixed_epochs
        for profile in profiles
        if not any(curve.paces for curve in profile.curves.values())
    } - {None}
    if stated:
        yield f"number of epochs, {max(filter(None, stated))} (workload.epochs)"
    yield from inputs.adjusted


def _list_assumed(inputs: ScenarioInputs) -> Iterator[str]:
    """What is assumed of signals: values that are made up, and forecasts that read true values."""
    signals = {name: signal for run in inputs.runs.values() for name, signal in run.signals.items()}
    for name, (series, forecast, *_) in signals.items():
        if series is not None and series.is_made_up:
            yield f"values of the signal {name} (made up: a sine)"
        if forecast is not None and forecast.assumption:
            yield f"forecasts of the signal {name} ({forecast.kind}: {forecast.assumption})"


def _list_fallbacks(live: LiveReport | None) -> Iterator[str]:
    """Values of signals that did not arrive in time in a live run, and what stood in for them."""
    for arrived in () if live is None else live.get("signals", ()):
        if arrived["fallbacks"]:
            held = "the last value"
            if arrived["fallback"] != "last":
                held = f"the fallback {arrived['fallback']:g}"
            yield (
                f"{count(arrived['fallbacks'], 'value')} of the signal {arrived['name']} ("
                f"{held}, in variant {arrived['variant']} with seed {arrived['seed']})"
            )


def _list_modelled(
    inputs: ScenarioInputs, kind: WorkloadKind, results: Sequence[ClusterResult], measured: int
) -> list[str]:
    """The inputs that come from a model and were not recorded; `measured`: jobs of known power."""
    if not kind.is_simulated:
        return []
    modelled = ["idle power of GPUs"]
    if any("duration" in result.by["replayed"] for result in results):
        modelled += _list_busy_power(inputs.any_run.jobs, measured)
    limited = {
        model.gpu_type: model.fitted_from
        for run in inputs.runs.values()
        for model in run.limits.values()
    }
    has_cases = any(base_of(variant) in inputs.runs for variant in inputs.runs)
    cases = "; low, middle and high: how far they are bound by compute" * has_cases
    modelled += [
        f"power and speed of jobs without a profile under a power limit on {name} (fitted from "
        f"{source}){cases}"
        for name, source in limited.items()
    ]
    clusters = [run.cluster for run in inputs.runs.values()]
    if any(cluster.sleep_after_s is not None for cluster in clusters):
        modelled.append("power and waking of sleeping nodes")
    if any(cluster.pue != 1 for cluster in clusters):
        modelled.append("power usage effectiveness")
    modelled += [*_list_adjusted(inputs), *_list_assumed(inputs)]
    if inputs.mapping:
        modelled.append("workloads of the jobs")
    if inputs.timed:
        modelled.append(f"durations of {inputs.timed} jobs (workload.durations)")
    modelled += kind.list_modelled(inputs, results)
    return modelled

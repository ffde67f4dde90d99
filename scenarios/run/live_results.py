"""Results of live runs: what their tables and the manifest say of attempts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from wattkeeper.live.controller.lifecycle import AttemptEnding
from wattkeeper.scenarios.analysis.manifest import FailedAttempt, LiveReport
from wattkeeper.scenarios.inputs.run_inputs import InputsByVariant
from wattkeeper.scenarios.run.live_equipment import Equipment
from wattkeeper.scenarios.run.live_signals import describe_arrivals
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.sim.cluster_results.tables import ClusterResult
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.traces.arrow import replace_column

Endings = Sequence[AttemptEnding]

COMPLETE: Final = {"reached", "epochs", "bound", "left", "ended"}
"""Causes of attempts that did not fail."""


def with_outcomes(result: ClusterResult, endings: Endings) -> ClusterResult:
    """Results with the power limits that were in force, and the attempts that were stopped.

    Jobs without a profile keep `replayed: duration`: no process trains them.
    """
    jobs = result.tables["jobs"]
    outcomes_by_attempt = {(end.job_id, end.attempt): end.outcome for end in endings}
    attempts = zip(jobs["job_id"].to_pylist(), jobs["attempt"].to_pylist(), strict=True)
    outcomes = [outcomes_by_attempt.get(attempt) for attempt in attempts]
    limits_w = [
        limit_w if outcome is None or outcome.limit_set else outcome.power_limit_w
        for outcome, limit_w in zip(outcomes, jobs["power_limit_w"].to_pylist(), strict=True)
    ]
    stopped = [outcome is not None and outcome.cause == "bound" for outcome in outcomes]
    replayed = ["live" if kind == "profile" else kind for kind in jobs["replayed"].to_pylist()]
    jobs = replace_column(jobs, "replayed", pa.array(replayed))
    jobs = replace_column(jobs, "power_limit_w", pa.array(limits_w, pa.float64()))
    jobs = replace_column(jobs, "early_stopped", pa.array(stopped))
    tables = result.tables | {"jobs": jobs}
    parts = result.by["replayed"]
    by_kind = {
        "live" if kind == "profile" else kind: part if len(parts) > 1 else result.metrics
        for kind, part in parts.items()
    }
    by = result.by | {"replayed": by_kind}
    return replace(result, tables=tables, by=by, digest=digest_tables(tables))


def report(
    equipment: Equipment, endings: Sequence[tuple[RunSpec, Endings]], inputs: InputsByVariant
) -> LiveReport:
    """The part of the manifest on live runs; it lists the attempts that failed."""
    arrived = [
        signal
        for spec, _ in endings
        for signal in describe_arrivals(spec, inputs[spec.variant.name], equipment.folder)
    ]
    failed: list[FailedAttempt] = [
        {
            "variant": spec.variant.name,
            "seed": spec.seed,
            "job_id": end.job_id,
            "attempt": end.attempt,
            "cause": end.outcome.cause,
            "message": end.outcome.message,
        }
        for spec, of_run in endings
        for end in of_run
        if end.outcome.cause not in COMPLETE
    ]
    outcomes = [end.outcome for _, of_run in endings for end in of_run]
    about: LiveReport = {
        "runner": equipment.section.runner,
        "folder": str(equipment.folder),
        "speed": equipment.section.speed,
        "devices": list(equipment.devices),
        "power_limits": equipment.limits,
        "energy": sorted({outcome.how for outcome in outcomes}),
        "causes": dict(sorted(Counter(outcome.cause for outcome in outcomes).items())),
        "attempts": failed,
    }
    if arrived:
        about["signals"] = arrived
    return about

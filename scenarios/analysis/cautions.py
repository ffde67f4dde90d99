"""Warnings that belong before the figures of a study."""

from collections import Counter
from collections.abc import Collection, Iterator

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import LiveReport, Manifest
from wattkeeper.scenarios.analysis.outside_window import describe_idle_end, describe_outside
from wattkeeper.scenarios.analysis.resolved.workload import section_of
from wattkeeper.scenarios.inputs.job_filter import describe_dropped, describe_ignored_types
from wattkeeper.scenarios.inputs.measured_energy import describe_measured
from wattkeeper.scenarios.inputs.profiled_jobs import describe_share
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.files.names import file_name


def describe_profiles(manifest: Manifest) -> Iterator[str]:
    """What profiles stand for, which belongs before everything else."""
    if "profiled" in manifest:
        yield from describe_share(manifest["profiled"])


def cautions(manifest: Manifest, summary: Json) -> Iterator[str]:
    """Warnings on jobs, seeds, windows and devices."""
    scenario = manifest["scenario"]
    if scenario["rng"] == "published" and section_of(scenario).is_log:
        yield "Seeds change nothing here: rng: published takes them from group names."
    sizes = (variant.get("workload") or {} for variant in scenario["variants"].values())
    if any("recurrences" in size for size in sizes):
        yield "Variants differ in their number of jobs: sums over jobs are not comparable."
    if "measured" in manifest:
        yield from describe_measured(manifest["measured"])
    yield from describe_outside(manifest, summary)
    yield from describe_idle_end(manifest, summary)
    yield from describe_dropped(manifest["dropped_jobs"], manifest.get("dropped_for", {}))
    yield from describe_ignored_types(manifest["ignored_gpu_types"])
    live = manifest.get("live")
    if live is not None:
        yield from _name_devices(live, summary["by"]["gpu_type"])
        if "synthetic" in live["energy"] and live["devices"] != ["synthetic"]:
            yield "Energy is that of a synthetic device: it was not measured."
        yield from _count_lost(live)


def _name_devices(live: LiveReport, gpu_types: Collection[str]) -> Iterator[str]:
    """Names the devices of a live run where the scenario gives them another GPU type."""
    if live["devices"] == ["synthetic"]:  # a rehearsal
        return
    devices = live["devices"] or ["cpu"]
    if not set(devices) & set(gpu_types):
        yield (
            f"It ran on {', '.join(devices)}; the scenario (cluster.gpu), and so the results, call "
            f"that {', '.join(gpu_types)}."
        )


def _count_lost(live: LiveReport) -> Iterator[str]:
    """Counts lost attempts by cause and quotes the last one; `live` is that of the manifest."""
    attempts = live.get("attempts", ())
    if not attempts:
        return
    causes = Counter(attempt["cause"] for attempt in attempts)
    last = attempts[-1]
    message = f": {last['message']}" if last["message"] else ""
    yield (
        f"{count(len(attempts), 'attempt')} lost: "
        f"{', '.join(f'{number} {cause}' for cause, number in sorted(causes.items()))}. "
        f"The last one, {last['job_id']} attempt {last['attempt']} of {last['variant']}, "
        f"{last['cause']}{message}. The output of each is in "
        f"{live['folder']}/{file_name(last['variant'])}/{last['seed']}/output"
    )

"""Warnings on the points of a sweep: which points they are of, and jobs that only some left out."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.cautions import cautions, describe_profiles
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.resolved.key_words import label_point
from wattkeeper.scenarios.analysis.resolved.policy_kinds import knows_run_times, policy_kind
from wattkeeper.scenarios.analysis.resolved.workload import section_of
from wattkeeper.scenarios.analysis.vocabulary import describe_free_preemption, format_value
from wattkeeper.scenarios.spec.wording import MOST_NAMED

SAME_SPAN: Final = 0.01
"""Windows that differ by so much of the shorter one are the same."""


class PointCautions(NamedTuple):
    """What to know of a point before its figures.

    Attributes:
        values: Values of the axes, by path.
        lines: Warnings.
        jobs: Jobs of each of its runs.
        charged_s: How long clusters are charged that run the jobs of a trace, s, longest run; else
            None.
    """

    values: Json
    lines: tuple[str, ...]
    jobs: int
    charged_s: float | None


def read_cautions(
    values: Json, manifest: Manifest, summary: Json, more: Iterable[str]
) -> PointCautions:
    """The warnings of a finished point; `more`: those of its kind of workload."""
    first = next(iter(summary["variants"].values()))
    jobs = int(first["metrics"]["jobs"]["mean"] or 0)
    scenario = manifest["scenario"]
    lines = (
        *describe_profiles(manifest),
        *cautions(manifest, summary),
        *more,
        *_describe_foresight(scenario),
        *describe_free_preemption(scenario, summary),
    )
    is_trace = section_of(scenario).is_log
    windows = manifest.get("windows") if is_trace else None
    charged_s = max(until_s - from_s for from_s, until_s in windows) if windows else None
    return PointCautions(values, lines, jobs, charged_s)


def _describe_foresight(scenario: Json) -> Iterator[str]:
    """Which schedulers know run times in advance."""
    variants = [name for name in scenario["variants"] if knows_run_times(scenario, name)]
    known = sorted({f"{policy_kind(scenario, name, 'select')}" for name in variants})
    if known:
        yield f"{' and '.join(known)} know{'s' * (len(known) == 1)} run times in advance."


def _describe_idle_axes(sweep: Json) -> Iterator[str]:
    """Which axes change nothing: points that differ in one alone have the same results."""
    points = [point for point in sweep["points"] if point.get("results_digest")]
    for path in sweep["axes"]:
        alike: dict[str, list[str]] = {}
        for point in points:
            others = {key: value for key, value in point["values"].items() if key != path}
            alike.setdefault(json.dumps(others), []).append(point["results_digest"])
        compared = [digests for digests in alike.values() if len(digests) > 1]
        if compared and all(len(set(digests)) == 1 for digests in compared):
            yield f"{path} changes nothing: points that differ in it alone have the same results."


def _describe_windows(points: Sequence[PointCautions]) -> Iterator[str]:
    """Whether clusters are charged longer at some points than at others."""
    charged_s = [point.charged_s for point in points if point.charged_s is not None]
    shortest, longest = min(charged_s, default=0.0), max(charged_s, default=0.0)
    if longest > (1 + SAME_SPAN) * shortest:
        spans = " to ".join(format_value(each, "makespan_s") for each in (shortest, longest))
        yield (
            f"Clusters are charged for {spans}, until the last job of a point ends: their energy "
            "at points that take longer has more idle time in it. State one time for all to "
            "compare it (accounting.until_s)."
        )


def have_different_jobs(points: Iterable[PointCautions]) -> bool:
    """Whether some points left out jobs that others have."""
    points = list(points)
    left_out = any("Left out" in line for point in points for line in point.lines)
    return left_out and len({point.jobs for point in points}) > 1


def merge_cautions(sweep: Json, points: Sequence[PointCautions]) -> Iterator[str]:
    """The warnings of a sweep and of all its points; those of some name them."""
    yield from _describe_idle_axes(sweep)
    if have_different_jobs(points):
        fewest, most = min(point.jobs for point in points), max(point.jobs for point in points)
        yield (
            f"Points left out different jobs: they have {fewest:,} to {most:,} jobs (column jobs). "
            "Figures of points with other jobs are not comparable, differences at one point are."
        )
    yield from _describe_windows(points)
    by_line: dict[str, list[Json]] = {}
    for point in points:
        for line in point.lines:
            by_line.setdefault(line, []).append(point.values)
    for line, places in by_line.items():
        if len(places) == len(points):
            yield line
            continue
        named = "; ".join(map(label_point, places[:MOST_NAMED]))
        more = len(places) - MOST_NAMED
        yield f"At {named}{f' and {more} more' if more > 0 else ''}: {line}"

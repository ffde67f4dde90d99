"""Report on a trace: content, anomalies, and possible savings."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console

from wattkeeper.policies.errors import InputError
from wattkeeper.traces.describe import (
    jobs,
    jobs_text,
    networks,
    node_events,
    power_log,
    profiles,
    text,
)
from wattkeeper.traces.trace import Trace

DEFAULT_ETA: Final = 0.5
PLAIN: Final[Mapping[str, Any]] = {
    "networks": networks,
    "node-events": node_events,
    "power-log": power_log,
}
"""Reports that nothing but the trace is needed for, by kind."""

Report = dict[str, Any]


def describe(
    trace: Trace, *, gpu_type: str | None = None, eta: float = DEFAULT_ETA, gpus: int | None = None
) -> Report:
    """Report on a trace, JSON-ready.

    Args:
        trace: Any trace.
        gpu_type: Only this GPU type; by default all. Ignored for jobs.
        eta: Weight of energy in the cost of the potential, in [0, 1].
        gpus: Size of a cluster to compare jobs with, >= 1. Ignored for profiles.

    Returns:
        The trace's origin, and the sections of `report` for its kind, as `profiles.report`.

    Raises:
        InputError: If `eta` or `gpus` is out of range.
        ProfileMissing: If there is no profile of that GPU type.
    """
    if not 0 <= eta <= 1:
        raise InputError(f"eta is {eta!r}, must be in [0, 1]")
    if gpus is not None and gpus < 1:
        raise InputError(f"a cluster of {gpus} GPUs holds no job; at least 1 is needed")
    head: Report = {
        "name": trace.name,
        "kind": trace.kind,
        "format": trace.format,
        "origin": trace.origin,
        "source": trace.source,
        "licence": trace.licence,
        "inputs": dict(trace.inputs),
        "notes": list(trace.notes),
        "rows": {name: table.num_rows for name, table in trace.tables.items()},
    }
    if trace.kind == "jobs":
        return head | jobs.report(trace, gpus)
    if trace.kind in PLAIN:
        plain: Report = PLAIN[trace.kind].report(trace)
        return head | plain
    return head | profiles.report(trace, gpu_type, eta)


def render(report: Report, console: Console) -> None:
    """Print a report of `describe` as tables."""
    text.head(report, console)
    sections = {**PLAIN, "jobs": jobs_text}
    sections.get(report["kind"], text).render(report, console)

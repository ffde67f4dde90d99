"""What a trace holds, where it is odd, and what it leaves to be saved."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console

from wattkeeper.policies.errors import InputError
from wattkeeper.traces.describe import jobs, jobs_text, profiles, text
from wattkeeper.traces.trace import Trace

DEFAULT_ETA: Final = 0.5

Report = dict[str, Any]


def describe(
    trace: Trace,
    *,
    gpu_type: str | None = None,
    eta: float = DEFAULT_ETA,
    gpus: int | None = None,
) -> Report:
    """A report on a trace, JSON-ready.

    Args:
        trace: Any trace.
        gpu_type: Only this one; by default all. Of no effect on jobs.
        eta: The knob of the cost that the potential is computed for, in [0, 1].
        gpus: Size of a cluster that jobs are held against, >= 1. Of no effect on profiles.

    Returns:
        What is known of its origin, and the sections of `describe_profiles.report` or
        `describe_jobs.report`.

    Raises:
        InputError: If `eta` or `gpus` is out of range.
        ProfileMissing: If there is nothing on that GPU type.
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
    return head | profiles.report(trace, gpu_type, eta)


def render(report: Report, console: Console) -> None:
    """Print a report of `describe` as tables."""
    text.head(report, console)
    sections = jobs_text if report["kind"] == "jobs" else text
    sections.render(report, console)

"""Published results of elastic training, their inputs, and random nodes that come and go."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import click
from click.testing import CliRunner, Result
from hypothesis import strategies as st

from benchmarks.papers.replays.inputs import RateTable, SpotChange, spot_changes
from benchmarks.papers.replays.result import ReplayResult
from wattkeeper.traces.formats.node_events import read
from wattkeeper.traces.node_events import node_events

TRACES = (
    "6h.csv",
    "3h.csv",
    "1h.csv",
    "30m.csv",
    "10m.csv",
    "scaled/scale_gcp-trace.csv",
    "scaled/scale_p3-trace.csv",
    "p3-trace.csv",
    "g4dn-trace.csv",
)
"""Files of spot nodes that come and are lost."""

COLUMNS = {
    "avg_samples_per_s": "avg_samples_per_s",
    "steps": "steps",
    "fatal": "fatal",
    "preemptions": "preemptions",
    "avg_instances": "avg_instances",
    "effective_time_ms": "effective_ms",
    "redundant_time_ms": "redundant_ms",
    "rebalance_time_ms": "rebalance_ms",
    "restart_time_ms": "restart_ms",
    "checkpoint_time_ms": "checkpoint_ms",
    "fallback_loss_time_ms": "fallback_loss_ms",
    "sum_gpu_overhead_ms": "gpu_overhead_ms",
}
"""Attributes of results by published column."""


def replay(command: click.Command, *arguments: str | Path, code: int = 0) -> Result:
    """Run a command in this process, in the folder and with the traces of `inside` or `spot`."""
    done = CliRunner().invoke(command, [str(one) for one in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


def read_reference(shared: Path, name: str) -> list[dict[str, str]]:
    """Rows of a published table."""
    with (shared / "reference/elastic" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def trace_name(trace: str) -> str:
    """The name in a library of a trace that published tables name by its file."""
    return f"spot-{Path(trace).stem.replace('_', '-')}"


def read_changes(shared: Path, trace: str) -> tuple[SpotChange, ...]:
    """A recorded or made-up trace of nodes."""
    return spot_changes(node_events(read([shared / "data/spot" / trace]).tables["node-events"]))


def check_spans(result: ReplayResult) -> None:
    """Check that spans have a length, and that those of steps count all that are finished."""
    assert all(span.begin_ms < span.end_ms for span in result.spans)
    assert list(result.spans) == sorted(result.spans)
    training = [span for span in result.spans if span.kind in ("step", "lost step")]
    for before, after in pairwise(training):
        assert before.end_ms <= after.begin_ms


@st.composite
def spot_nodes(draw: st.DrawFn) -> list[SpotChange]:
    """Nodes that come and are lost, many of them at once; names are used again."""
    changes = [SpotChange(0, "add", f"node{index}") for index in range(draw(st.integers(0, 40)))]
    present = [change.name for change in changes]
    absent = [f"new{index}" for index in range(40)]
    now_ms = 0
    for _ in range(draw(st.integers(1, 60))):
        now_ms += draw(st.sampled_from((0, 0, 1, 1_000, 30_000, 45_000, 600_000)))
        adds = draw(st.booleans()) and bool(absent)
        source, target = (absent, present) if adds or not present else (present, absent)
        name = source.pop(draw(st.integers(0, len(source) - 1)))
        target.append(name)
        changes.append(SpotChange(now_ms, "add" if source is absent else "remove", name))
    return changes


RATES = RateTable({nodes: 20.0 + 7.3 * nodes for nodes in range(15, 31)})
"""Rates for random nodes."""

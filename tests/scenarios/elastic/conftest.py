"""The traces of spot nodes that published results are on, in a library."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command, inside_with, run_command
from tests.support.published_replays import trace_name

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


@pytest.fixture(scope="session")
def spot_traces(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace library with them."""
    library = tmp_path_factory.mktemp("spot")
    for trace in TRACES:
        run_command(
            "traces",
            "import",
            "node-events",
            shared / "data/spot" / trace,
            "--name",
            trace_name(trace),
            traces=library,
            cwd=library,
        )
    return library


@pytest.fixture
def spot(spot_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`inside` with these traces."""
    return inside_with(spot_traces, tmp_path, monkeypatch)

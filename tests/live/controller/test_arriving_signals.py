"""Live runs whose signal arrives in a file that grows, or from a service."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.live.controller.test_live_moments import SCRIPT, install
from tests.live.signals.test_feed import MAPS_HISTORY, Answer, Service, hour, latest
from tests.support.live_runs import (
    command,
    decisions,
    environment,
    kill,
    manifest,
    rows,
    run,
    scenario,
)
from tests.support.messages import assert_states
from wattkeeper.live.signals.providers import MAPS_TOKEN

DEVICE = "synthetic:SYN-250W"
REPLAY = """\
import json, sys
from pathlib import Path
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.run.live_run import replay
from wattkeeper.scenarios.spec.loading import load

loaded = load(sys.argv[1])
(again,) = replay(loaded, read_inputs(loaded, live=True).runs, Path(sys.argv[2]))
print(json.dumps(again.tables["decisions"].select(["time_s", "chose"]).to_pylist()))
"""
"""Plays the log of a live run again, and prints its decisions."""

VALUES = {2: 0, 4: -1, 6: 3}
"""From so many seconds after the first epoch on, the number of a limit; below 0: a pause."""


def script(folder: Path, live: dict[str, Any] | None, **signal: Any) -> Path:
    """A training of some seconds that follows a live signal."""
    (folder / "train.py").write_text(SCRIPT)
    training = {
        "command": ["python", "train.py"],
        "batch_sizes": [32],
        "default_batch_size": 32,
        "max_epochs": 100,
    }
    content = {
        "name": "script",
        "cluster": {"gpu": "SYN-250W", "gpus": 1, "gpus_per_node": 1, "idle_power_w": 40},
        "workload": {"kind": "recurring", "recurrences": 1},
        "signals": {"s": {"live": live} | signal},
        "live": {"workloads": {"counts": training}},
        "variants": {"follow": {"policies": {"tune": "follow-signal"}}},
        "baseline": "follow",
    }
    return scenario(folder, content)


@contextmanager
def growing(path: Path, folder: Path) -> Iterator[None]:
    """Inside, a row is appended in each second; values change once the training has begun.

    A row of the past is missing, and the one three seconds after the first epoch.
    """
    over = threading.Event()
    begun_s: float | None = None

    def line(second: float, value: float) -> str:
        return f"{datetime.fromtimestamp(second, UTC).isoformat()},{value}\n"

    def write() -> None:
        nonlocal begun_s
        next_s, value = time.time() // 1 + 1, 3.0
        while not over.wait(max(0.0, next_s - time.time())):
            if begun_s is None and any(f.stat().st_size for f in folder.glob("live.live/**/*.out")):
                begun_s = next_s
            if begun_s is not None:
                value = VALUES.get(round(next_s - begun_s), value)
            text = "" if begun_s == next_s - 3 else line(next_s, value)
            with path.open("a") as file:  # in two pieces: the reader may come between
                file.write(text[:9])
                file.flush()
                file.write(text[9:])
            next_s += 1

    first_s = time.time() // 1
    past = "".join(line(first_s - back, 3.0) for back in (5, 4, 2, 1, 0))
    path.write_text(f"time,value\n{past}")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


@pytest.mark.slow
def test_a_training_follows_a_file_that_grows_and_survives_a_kill(tmp_path: Path) -> None:
    site = install(tmp_path)
    path = script(tmp_path, {"provider": "file", "file": "s.csv", "unit": "n", "fallback": "last"})
    with growing(tmp_path / "s.csv", tmp_path):
        controller = subprocess.Popen(
            command("run", path, "--live", "--out", "live"),
            cwd=tmp_path,
            env=environment(tmp_path, PYTHONPATH=site, WATTKEEPER_DEVICE=DEVICE),
            stdout=subprocess.DEVNULL,
        )
        time.sleep(6)
        killed = controller.poll() is None and kill(controller.pid)
        controller.wait()
        run(
            path, "--live", "--out", "live", cwd=tmp_path, PYTHONPATH=site, WATTKEEPER_DEVICE=DEVICE
        )
    assert killed
    (row,) = rows(tmp_path / "live", "jobs")
    assert (row["epochs"], row["attempt"], row["reached_target"]) == (100, 1, True)
    chose = [row[4] for row in decisions(tmp_path / "live") if row[0] == "tune"]
    assert "signal: run=pause" in chose
    assert "signal: power_limit_w=100.0" in "\n".join(chose)
    (about,) = manifest(tmp_path / "live")["live"]["signals"]
    assert (about["name"], about["source"], about["fallback"]) == ("s", "file s.csv", "last")
    assert about["values"] >= 6
    assert about["fallbacks"] >= 1
    assert_states(
        "\n".join(manifest(tmp_path / "live")["modelled"]), "of the signal s", "the last value"
    )
    assert (about["late_s"], about["failures"], about["problem"]) == (0, 0, "")
    again = subprocess.run(
        [sys.executable, "-c", REPLAY, path, tmp_path / "live.live"],
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONPATH=site, WATTKEEPER_DEVICE=DEVICE),
        capture_output=True,
        text=True,
        check=True,
    )
    journal = json.loads(again.stdout)
    assert journal == [
        {name: row[name] for name in ("time_s", "chose")}
        for row in rows(tmp_path / "live", "decisions")
    ]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv(MAPS_TOKEN, "secret")
    started = Service()
    yield started
    started.close()


def maps(service: Service, fallback: Any) -> dict[str, Any]:
    return {
        "provider": "electricity-maps",
        "zone": "DE",
        "address": service.address,
        "fallback": fallback,
    }


def test_a_service_and_its_fallback(tmp_path: Path, service: Service) -> None:
    site = install(tmp_path)
    short = SCRIPT.replace("range(4)", "range(1)").replace("0.02", "0.001")
    service.answer(MAPS_HISTORY, {"history": [latest(2.0, hour())]})
    path = script(tmp_path, maps(service, 0))
    (tmp_path / "train.py").write_text(short)
    run(
        path, "--live", "--out", "answered", cwd=tmp_path, PYTHONPATH=site, WATTKEEPER_DEVICE=DEVICE
    )
    (about,) = manifest(tmp_path / "answered")["live"]["signals"]
    assert (about["values"], about["fallbacks"]) == (0, 0), "the first one was there"
    assert "Electricity Maps, zone DE" in about["source"]
    assert "secret" not in (tmp_path / "answered/manifest.json").read_text()
    service.answer(MAPS_HISTORY, Answer(b"", 403))
    path = script(tmp_path, maps(service, 0) | {"zone": "FR"})
    (tmp_path / "train.py").write_text(short)
    run(path, "--live", "--out", "refused", cwd=tmp_path, PYTHONPATH=site, WATTKEEPER_DEVICE=DEVICE)
    (about,) = manifest(tmp_path / "refused")["live"]["signals"]
    assert about["fallbacks"] == 1
    assert_states(
        "\n".join(manifest(tmp_path / "refused")["modelled"]), "1 value of the signal s", "fallback"
    )


@pytest.mark.parametrize(
    ("live", "facts"),
    [
        (
            {"provider": "file", "file": "none.csv", "fallback": "last"},
            ["signals.s.live", "none.csv", "No such file"],
        ),
        ({"provider": "file", "file": "s.csv", "fallback": "abc"}, ["number or 'last'"]),
        ({"zone": "DE", "fallback": 1}, ["'provider'"]),
        ({"provider": "electricity-maps", "zone": "DE"}, ["fallback"]),
        ({"provider": "electricity-maps", "zone": "DE/..", "fallback": 1}, ["zone"]),
        (
            {"provider": "watttime", "region": "X", "fallback": 1, "address": "file:///etc"},
            ["address", "https://HOST"],
        ),
        ({"provider": "file", "file": "s.csv", "fallback": 1, "repeat": "day"}, ["repeat"]),
        (
            {"provider": "file", "file": "s.csv", "fallback": 1, "fill": "previous"},
            ["fill", "fallback"],
        ),
        ({"provider": "nobody", "fallback": 1}, ["'nobody'", "electricity-maps", "watttime"]),
    ],
)
def test_sources_that_are_refused(tmp_path: Path, live: dict[str, Any], facts: list[str]) -> None:
    site = install(tmp_path)
    path = script(tmp_path, live)
    code = 3 if live.get("fallback") == "last" else 2
    done = run(
        path,
        "--live",
        "--out",
        "live",
        cwd=tmp_path,
        code=code,
        PYTHONPATH=site,
        WATTKEEPER_DEVICE=DEVICE,
    )
    assert_states(done.stderr, *facts)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_start_that_failed_is_no_run_to_go_on_with(tmp_path: Path) -> None:
    site = install(tmp_path)
    path = script(tmp_path, {"provider": "file", "file": "s.csv", "unit": "n", "fallback": "last"})
    (tmp_path / "train.py").write_text(SCRIPT.replace("range(4)", "range(1)").replace("0.02", "0"))
    go = partial(
        run,
        path,
        "--live",
        "--out",
        "live",
        cwd=tmp_path,
        PYTHONPATH=site,
        WATTKEEPER_DEVICE=DEVICE,
    )
    assert_states(go(code=3).stderr, "s.csv", "No such file")
    (tmp_path / "s.csv").write_text("time,value\n2024-01-01T00:00Z,3\n2024-01-01T01:00Z,3\n")
    said = go().stderr
    assert_states(said, "signal s: ", "2024-01-01 01:00:00Z", "the last value holds")
    assert "Goes on" not in said
    (about,) = manifest(tmp_path / "live")["live"]["signals"]
    assert about["late_s"] > 1e6
    assert min(row["time_s"] for row in rows(tmp_path / "live", "decisions")) < 5


def test_a_simulation_needs_a_series(tmp_path: Path, service: Service) -> None:
    site = install(tmp_path)
    path = script(tmp_path, maps(service, 0))
    done = run(
        path,
        "--out",
        "sim",
        "--set",
        "workload.profiles={synthetic: {}}",
        "--set",
        "live={}",
        cwd=tmp_path,
        code=2,
        PYTHONPATH=site,
    )
    assert_states(done.stderr, "signals.s.series", "'s'", "live run")
    assert service.asked == []

"""One training in the simulator, in a rehearsed live run and in sessions: the same decisions."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_runs import REHEARSED, environment, rows, run, scenario
from wattkeeper.live.session.store import SessionStore
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load

WITNESSES = '''
"""Zeus's policies, which write down what they are shown and what they choose."""

import json
import os
from typing import Literal

from wattkeeper.policies.configure.zeus import Zeus, ZeusConfig
from wattkeeper.policies.tune.zeus_jit import ZeusJit, ZeusJitConfig


def write(point, start, saw, chose):
    options = start.options._replace(key="", samples_per_epoch=0.0)  # sessions do not know it
    row = [point, start.job.group_id, start.job.recurrence, start.attempt, start.group_in_flight,
           options, saw, chose]
    with open(os.environ["WITNESSED"], "a") as file:
        file.write(json.dumps(row) + "\\n")


class WitnessConfig(ZeusConfig):
    """Zeus."""

    kind: Literal["witness"] = "witness"

    def build(self):
        return Witness(self)


class Witness(Zeus):
    def configure(self, ctx, start):
        chosen = super().configure(ctx, start)
        write("configure", start, ctx.objective.eta, chosen)
        return chosen


class JitWitnessConfig(ZeusJitConfig):
    """Zeus's power limits."""

    kind: Literal["jit-witness"] = "jit-witness"

    def build(self):
        return JitWitness()


class JitWitness(ZeusJit):
    def tune(self, ctx, running):
        knobs = super().tune(ctx, running)
        write("tune", running.start, running[1:], knobs)
        return knobs
'''

TRAIN = """
import json, sys
from pathlib import Path

import wattkeeper.live.devices.synthetic as synthetic
import wattkeeper.live.wire.clock as clocks
from wattkeeper.live import Session
from wattkeeper.live.devices.device import PowerRange
from wattkeeper.live.host.wall_clock import WallClock


class VirtualClock(WallClock):
    time_s = 1e9  # beyond that of the host, on which the guard of power limits runs

    def now_s(self):
        return self.time_s


given = json.loads(sys.argv[1])
clock = VirtualClock()
clocks.run_clock = synthetic.WallClock = lambda *_: clock
limits = PowerRange(given["limits_w"][0], given["limits_w"][-1], given["limits_w"][-1])
device = synthetic.SyntheticDevice.create(
    Path(given["device"]), given["gpu_type"], limits, given["idle_w"], clock
)
for needed in given["epochs"]:
    with Session(
        "image", batch_sizes=given["batch_sizes"], default_batch_size=given["default"],
        max_epochs=given["max_epochs"], target=1.0, power_limits_w=given["limits_w"],
        configure="witness", tune="jit-witness",
    ) as session:
        points = given["points"][str(session.batch_size)]
        device.draw({limit_w: power_w for limit_w, _, power_w in points})
        epoch_s = {limit_w: time_s for limit_w, time_s, _ in points}
        steps = 2 * len(session.assignment.profile_w) or 1
        for epoch in session.epochs(steps=steps):
            for _ in range(steps):
                clock.time_s += epoch_s[device.limit_w()] / steps
                session.step()
            session.report(epoch.number / needed)
        device.rest()
"""

RECURRENCES = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the three, and what the policies witnessed in each."""
    folder = tmp_path_factory.mktemp("three")
    (folder / "witnesses.py").write_text(WITNESSES)
    info = folder / "witnesses-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: witnesses\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[wattkeeper.policies]\nwitnesses = witnesses\n")
    paths = filter(None, [str(folder), os.environ.get("PYTHONPATH")])
    modules = os.pathsep.join(paths)
    policies = {"policies": {"configure": "witness", "tune": "jit-witness"}}
    path = scenario(
        folder,
        REHEARSED | {"variants": {"zeus": policies}},
        workloads=["image"],
        recurrences=RECURRENCES,
    )
    run(path, "--out", "sim", cwd=folder, PYTHONPATH=modules, WITNESSED=str(folder / "sim.jsonl"))
    run(
        path,
        "--out",
        "live",
        "--live",
        cwd=folder,
        PYTHONPATH=modules,
        WITNESSED=str(folder / "live.jsonl"),
    )
    train(folder, PYTHONPATH=modules, WITNESSED=str(folder / "sessions.jsonl"))
    return folder


def train(folder: Path, **variables: str) -> None:
    """Do the same recurrences as sessions, on a device that draws what the profile says."""
    loaded = load(str(scenario(folder, REHEARSED | {"name": "plain"}, workloads=["image"])), ())
    (profile,) = read_inputs(loaded).any_run.profiles.values()
    curves = profile.curves
    needed = [
        row["epochs"] if row["reached_target"] else math.inf for row in rows(folder / "sim", "jobs")
    ]
    given = {
        "device": str(folder / "gpu"),
        "gpu_type": profile.gpu_type,
        "idle_w": 40.0,
        "limits_w": next(iter(curves.values())).limits_w,
        "batch_sizes": tuple(curves),
        "default": profile.default_batch_size,
        "max_epochs": profile.max_epochs,
        "epochs": needed,
        "points": {
            size: list(
                zip(curve.limits_w, curve.time_per_epoch_s, curve.average_power_w, strict=True)
            )
            for size, curve in curves.items()
        },
    }
    subprocess.run(
        [sys.executable, "-c", TRAIN, json.dumps(given)],
        env=environment(
            folder,
            WATTKEEPER_DEVICE=f"synthetic:{folder}/gpu",
            WATTKEEPER_STORE=str(folder / "store.sqlite"),
            **variables,
        ),
        cwd=folder,
        check=True,
    )


def scalars(value: Any) -> Iterator[Any]:
    """What a nested list holds, in order."""
    if isinstance(value, list):
        for each in value:
            yield from scalars(each)
    else:
        yield value


def witnessed(folder: Path, name: str) -> list[list[Any]]:
    lines = (folder / f"{name}.jsonl").read_text().splitlines()
    return [list(scalars(json.loads(line))) for line in lines]


@pytest.mark.parametrize("name", ["live", "sessions"])
def test_policies_see_and_choose_the_same(folder: Path, name: str) -> None:
    expected, found = witnessed(folder, "sim"), witnessed(folder, name)
    assert {row[0] for row in expected} == {"configure", "tune"}
    assert max(row[2] for row in expected) == RECURRENCES
    assert max(row[3] for row in expected) > 1, "one recurrence missed its target"
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert len(mine) == len(theirs)
        for value, other in zip(mine, theirs, strict=True):
            number = type(other) is float
            assert value == (pytest.approx(other, rel=1e-6) if number else other), (mine, theirs)


@pytest.mark.parametrize("name", ["live", "sessions"])
def test_journals_are_equal(folder: Path, name: str) -> None:
    expected = journal(rows(folder / "sim", "decisions"))
    if name == "live":
        found = journal(rows(folder / "live", "decisions"))
    else:
        stored = SessionStore(folder / "store.sqlite").journal("image")
        found = journal([row | {"job_id": f"image/{row['recurrence']}"} for row in stored])
    assert [row[:-1] for row in found] == [row[:-1] for row in expected]
    bounds = [float(row[-1]) for row in expected]
    assert len({bound for bound in bounds if bound < math.inf}) > 1
    assert [float(row[-1]) for row in found] == pytest.approx(bounds, rel=1e-6)


def journal(decisions: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Decisions about attempts in order, the cost bound apart."""
    found = []
    for row in decisions:
        if row["point"] in {"configure", "tune"}:
            chose, _, bound = row["chose"].partition(" cost_bound=")
            found.append(
                (row["point"], row["policy"], row["job_id"], row["attempt"], chose, bound or "0")
            )
    return found

"""A signal while a policy is asked ends the session or process; the policy has not failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import finish
from tests.support.sessions import DRAWN, history
from tests.support.worlds import by_job, chosen, run_world, spec, steady, stub
from wattkeeper.live.devices.power_limiter import PowerLimiter
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.policies.registry import Point
from wattkeeper.scenarios.contract.scripted import job

POLICY = '''\
"""A policy that gets a signal while it decides on what was measured."""

import os
import signal
from typing import ClassVar, Literal

from wattkeeper.policies.points.views import Knobs
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.registry import Point, PolicyConfig


class Mine(Tune):
    def tune(self, ctx, running):
        limits_w = running.start.options.limits(running.configuration.batch_size)
        if not running.measured:
            return Knobs(profile_w=limits_w)
        os.kill(os.getpid(), getattr(signal, os.environ["SENT"]))
        return Knobs(limits_w[0])


class MineConfig(PolicyConfig):
    point: ClassVar[Point] = "tune"
    kind: Literal["mine"] = "mine"
    policy = Mine
'''
SCRIPT = """
import signal, sys
from mine_policy import MineConfig
from tests.support.sessions import DRAWN, session

signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
with session(power_limits_w=tuple(DRAWN), tune=MineConfig()) as found:
    for _ in found.epochs():
        found.report(1.0)
raise AssertionError("it went on")
"""


@pytest.mark.parametrize(
    ("sent", "code", "status"), [("SIGTERM", -signal.SIGTERM, "stopped"), ("SIGUSR1", 7, "ended")]
)
def test_a_signal_while_a_session_asks_a_policy(
    sent: str, code: int, status: str, device: SyntheticDevice, tmp_path: Path
) -> None:
    (tmp_path / "mine_policy.py").write_text(POLICY)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path, "SENT": sent},
    )
    finish(process, code)
    (row,) = history()
    assert row["status"] == status
    assert "policy" not in (row["message"] or "")
    assert device.limit_w() == max(DRAWN)


@pytest.mark.parametrize(
    ("point", "method"),
    [
        ("configure", "configure"),
        ("configure", "observe"),
        ("configure", "on_submit"),
        ("tune", "tune"),
        ("place", "place"),
        ("select", "select"),
    ],
)
def test_the_exit_of_a_power_limiter_is_not_the_policys(
    point: Point, method: str, device: SyntheticDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process of a container does not die of SIGTERM: the limiter raises its exit."""

    def configure(_: Any, start: Start) -> Configuration:
        return Configuration(start.options.default_batch_size)

    methods: dict[str, Callable[..., Any]] = (
        {"configure": configure} if point == "configure" else {}
    )
    methods[method] = lambda *_: signal.raise_signal(signal.SIGTERM)
    policies: dict[str, Any] = {point: stub(point, **methods)}  # type: ignore[arg-type]
    with PowerLimiter([device]):
        monkeypatch.setattr(os, "kill", lambda *_: None)
        with pytest.raises(SystemExit) as ended:
            run_world([job("a")], by_job(steady()), spec(), chosen(**policies))
        monkeypatch.undo()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert ended.value.code == 128 + signal.SIGTERM

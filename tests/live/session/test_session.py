"""Sessions in training scripts: their arguments, and how they end."""

from __future__ import annotations

import inspect
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clocks import ManualTime
from tests.support.sessions import history, session, train
from wattkeeper.live import Session
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.session.arguments import scale_learning_rate
from wattkeeper.live.wire.messages import Cause
from wattkeeper.policies.configure.fixed import FixedConfig
from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError


@given(st.floats(1e-6, 10.0), st.integers(1, 4096), st.integers(1, 4096))
def test_learning_rates_scale_with_the_batch_size(rate: float, size: int, default: int) -> None:
    assert scale_learning_rate(rate, size, default, "none") == rate
    assert scale_learning_rate(rate, size, default, "linear") == pytest.approx(
        rate * size / default
    )
    assert scale_learning_rate(rate, 4 * size, size, "square-root") == pytest.approx(2 * rate)
    back = scale_learning_rate(
        scale_learning_rate(rate, size, default, "square-root"), default, size, "square-root"
    )
    assert back == pytest.approx(rate)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"batch_sizes": ()}, "at least one is needed"),
        ({"default_batch_size": 7}, "default batch size 7; allowed: 16, 32"),
        ({"max_epochs": 0}, "max_epochs=0; must be at least 1"),
        ({"eta": 2}, "eta=2; must be from 0"),
        ({"target": math.nan}, "the target nan; must be finite"),
        ({"power_limits_w": (0.0,)}, "all must be above 0"),
        ({"configure": "magic"}, "no configure policy 'magic'; there is .*zeus"),
        ({"tune": "zeus"}, "no tune policy 'zeus' .*; there is .*fixed-power"),
        ({"tune": "fixed-power"}, "needs power_limit_w: give its config.*FixedPowerConfig"),
        ({"tune": FixedConfig()}, "found 'fixed', a configure policy, as tune"),
        ({"configure": FixedConfig(batch_size=8)}, "batch size 8 .*; there is 16, 32"),
    ],
)
def test_wrong_arguments_are_refused(terms: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, PolicyError), match=message), session(**{"eta": 0, **terms}):
        pass
    assert not history()


def test_a_training_without_a_zoo_loads_no_simulator() -> None:
    """From its first decision to its stored outcome, with policies that measure and learn."""
    code = """if True:
        import sys
        from wattkeeper.live import Session
        with Session("mine", batch_sizes=[16, 32], default_batch_size=32, max_epochs=2, eta=0,
                     target=1.0) as session:
            for epoch in session.epochs():
                session.report(epoch.number / 2)
        assert session.reached
        parts = {"simpy", "pyarrow", "pandas", "torch", "numba"}
        print(*sorted(name for name in sys.modules if name.partition(".")[0] in parts
                      or name.startswith(("wattkeeper.sim.engine.world", "wattkeeper.sim.engine."
                                          "environment", "wattkeeper.scenarios",
                                          "wattkeeper.live.zoo", "wattkeeper.live.controller"))))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
    assert [row["cause"] for row in history()] == ["reached"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("oracle", "needs foresight"),
        ("modelkeeper", "needs a zoo of models, which a session does not have"),
    ],
)
def test_policies_that_cannot_be_asked_live_are_refused(kind: str, why: str) -> None:
    with pytest.raises(PolicyError, match=why), session(eta=0, configure=kind):
        pass


def test_without_a_device_only_time_counts() -> None:
    with pytest.raises(EnvironmentLacks, match=r"say eta=0, which counts time alone(.|\n)*none"):
        train(target=3.0)
    found = train(eta=0, target=3.0)
    assert (found.reached, found.outcome.epochs) == (True, 3)
    assert (found.outcome.energy_j, found.outcome.how) == (None, "absent")
    assert found.power_limit_w is None
    assert history()[0]["cost"] == found.outcome.time_s


def test_learning_rate_of_a_session() -> None:
    with session(eta=0, configure=FixedConfig(batch_size=16)) as found:
        assert found.batch_size == 16
        assert found.learning_rate(0.1) == 0.05
        assert found.learning_rate(0.1, "square-root") == pytest.approx(0.1 / math.sqrt(2))
        with pytest.raises(InputError, match="no rule 'cubic' for learning rates"):
            found.learning_rate(0.1, "cubic")  # type: ignore[arg-type]


def test_a_loss_is_reached_from_above() -> None:
    with session(eta=0, target=0.3, higher_is_better=False) as found:
        for epoch in found.epochs():
            found.report(1 / epoch.number)
    assert (found.reached, found.outcome.epochs) == (True, 4)


def test_the_cost_bound_ends_a_training_that_misses_its_target(clock: ManualTime) -> None:
    train(lambda: clock.sleep(0.1 / 12), eta=0, target=2.0)
    with session(eta=0, target=2.0) as found:
        for _ in found.epochs(range(4)):
            clock.sleep(0.15)
            found.report(0.0)
    assert found.outcome.cause == "bound"
    cost = history()[1]["cost"]
    an_epoch = cost / found.outcome.epochs
    assert cost - an_epoch <= found.assignment.cost_bound, "of a last epoch more than planned"
    assert cost + an_epoch > found.assignment.cost_bound
    assert not history()[1]["reached"]


@pytest.mark.parametrize("target", [None, 9.0])
def test_leaving_the_loop_is_an_outcome(target: float | None) -> None:
    with session(eta=0, target=target) as found:
        for epoch in found.epochs():
            found.report(epoch.number)
            if epoch.number == 2:
                break
    assert (found.outcome.cause, found.outcome.epochs) == ("left", 2)
    assert [(row["reached"], row["learnt"]) for row in history()] == [(target is None, True)]


def test_leaving_after_the_target_counts_as_reaching_it() -> None:
    with session(eta=0, target=1.0) as found:
        for epoch in found.epochs():
            found.report(epoch.number)
            break
    assert found.reached


def test_an_exception_is_stored_and_raised(device: SyntheticDevice) -> None:
    with pytest.raises(RuntimeError, match="bad batch"), session() as found:  # noqa: PT012
        for _ in found.epochs():
            assert device.limit_w() == 200.0
            found.report(0.1)
            raise RuntimeError("bad batch")
    assert (found.outcome.cause, found.outcome.epochs) == ("failed", 0)
    (row,) = history()
    assert row["message"] == "RuntimeError: bad batch"
    assert device.limit_w() == 200.0


def test_calls_in_the_wrong_place_are_refused() -> None:
    with session(eta=0) as found:
        with pytest.raises(InputError, match="belongs into the loop"):
            found.report(0.5)
        for epoch in found.epochs():
            with pytest.raises(InputError, match="must be a number"):
                found.report("good")  # type: ignore[arg-type]
            with pytest.raises(InputError, match="give epochs\\(\\) the loader"):
                next(iter(epoch))
        with pytest.raises(InputError, match="once in a session"):
            next(found.epochs())


def test_the_code_of_the_page_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("WATTKEEPER_DEVICE", "synthetic:SYN-250W")
    page = (Path(__file__).parents[3] / "docs/session.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    script, slices, look = blocks
    code = script + script + look + slices  # in one process: it takes seconds to load torch
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    said = done.stdout.splitlines()
    assert ["AttemptResult(cause=" in line for line in said] == [True, True, False, False, True]
    assert [line.split()[:3] for line in said[2:4]] == [["1", "1", "64"], ["2", "1", "32"]]
    named = set(re.findall(r"`(\w+)`", page))
    assert set(inspect.signature(Session).parameters) - {"job"} <= named
    assert set(get_args(Cause)) <= named

"""Sessions in training scripts, on a synthetic device and on none."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clocks import ManualTime
from tests.support.processes import finish, lines, until
from wattkeeper.live import Session
from wattkeeper.live.devices.device import PowerRange
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.host import wall_clock
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.session.lr_scaling import scale_learning_rate
from wattkeeper.live.session.store import SessionStore
from wattkeeper.live.wire.messages import Cause
from wattkeeper.policies.configure.fixed import FixedConfig
from wattkeeper.policies.configure.modelkeeper import ModelkeeperParentConfig
from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError, StoreError
from wattkeeper.policies.protocols import Measurement
from wattkeeper.policies.tune.fixed_power import FixedPowerConfig

PLAIN = Path(__file__).parents[2] / "support/session_plain.py"
TERMS: dict[str, Any] = {"batch_sizes": (16, 32), "default_batch_size": 32, "max_epochs": 4}
DRAWN = {100.0: 90.0, 150.0: 120.0, 200.0: 150.0}
IDLE_W = 30.0


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WATTKEEPER_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTKEEPER_DEVICE", "none")
    monkeypatch.delenv("WATTKEEPER_STORE", raising=False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualTime:
    """The clock of this process's sessions and devices: trainings take no time but its sleeps."""
    return ManualTime().govern(monkeypatch, wall_clock)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SyntheticDevice:
    """A GPU that draws what `DRAWN` says, whatever runs."""
    limits = PowerRange(100.0, 200.0, 200.0)
    made = SyntheticDevice.create(tmp_path / "gpu", "SYN", limits, IDLE_W, WallClock())
    made.draw(DRAWN)
    monkeypatch.setenv("WATTKEEPER_DEVICE", f"synthetic:{tmp_path}/gpu")
    return made


def session(**terms: Any) -> Session:
    return Session("mine", **{**TERMS, **terms})


def train(do_step: Callable[[], None] = lambda: None, **terms: Any) -> Session:
    with session(**terms) as found:
        for epoch in found.epochs(range(12)):
            for _ in epoch:
                do_step()
            found.report(epoch.number)
    return found


def history() -> list[dict[str, Any]]:
    return SessionStore().history("mine")


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
        ({"tune": "zeus"}, "no tune policy 'zeus'; there is fixed-power"),
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
                                          "clock", "wattkeeper.scenarios",
                                          "wattkeeper.live.zoo", "wattkeeper.live.controller"))))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
    assert [row["cause"] for row in history()] == ["reached"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("oracle", "only a simulation can"),
        ("modelkeeper", "from a zoo of models: give it to warm_start"),
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


def test_limits_are_profiled_in_the_first_epoch(clock: ManualTime, device: SyntheticDevice) -> None:
    seen: list[list[float]] = []
    times = {100.0: 1.2, 150.0: 0.12, 200.0: 0.6}
    with session(target=3.0, power_limits_w=tuple(DRAWN)) as found:
        for epoch in found.epochs(range(12)):
            seen.append([])
            for _ in epoch:
                seen[-1].append(device.limit_w())
                clock.sleep(times[device.limit_w()] / 12)
            found.report(epoch.number)
    assert seen == [[200.0] * 4 + [150.0] * 4 + [100.0] * 4, [150.0] * 12, [150.0] * 12]
    assert device.limit_w() == 200.0, "put back"
    (row,) = history()
    assert (row["power_limit_w"], row["limit_set"], row["how"]) == (150.0, True, "synthetic")
    again = train(target=3.0, power_limits_w=tuple(DRAWN), configure=FixedConfig())
    assert again.assignment.profile_w == (), "what was learnt is not measured again"
    assert again.power_limit_w == 150.0


def test_profiling_leaves_warm_up_steps_out(
    clock: ManualTime, device: SyntheticDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Measurement] = []
    from wattkeeper.live.session.local_coordinator import LocalCoordinator

    ask = LocalCoordinator.report_profile

    def listen(guide: LocalCoordinator, report: tuple[Measurement, ...]) -> float:
        found.extend(report)
        return ask(guide, report)

    monkeypatch.setattr(LocalCoordinator, "report_profile", listen)
    with session(power_limits_w=tuple(DRAWN)) as one:
        for epoch in one.epochs(range(30)):
            for step in epoch:
                warms = epoch.number == 1 and step % 10 < 2
                clock.sleep(0.5 if warms and step < 2 else 0.002)
    assert [m.power_limit_w for m in found] == [200.0, 150.0, 100.0]
    for one_found in found:
        assert one_found.average_power_w == pytest.approx(DRAWN[one_found.power_limit_w])
        assert one_found.time_per_epoch_s == pytest.approx(30 * 0.002)
    assert one.outcome.time_s > 1.0, "but are paid"


@pytest.mark.parametrize("steps", [None, 5])
def test_without_enough_steps_whole_epochs_are_measured(
    clock: ManualTime, device: SyntheticDevice, steps: int | None
) -> None:
    seen = []
    with session(power_limits_w=tuple(DRAWN)) as found:
        for _ in found.epochs(steps=steps):
            seen.append(device.limit_w())
            clock.sleep(0.01)
            for _ in range(steps or 0):
                found.step()
    assert seen[:3] == [200.0, 150.0, 100.0]
    assert found.power_limit_w == seen[3] == history()[0]["power_limit_w"]


def test_energy_is_that_of_the_device(clock: ManualTime, device: SyntheticDevice) -> None:
    before_s, before_j = device.wall.now_s(), device.energy_j()
    clock.sleep(1.0)
    found = train(lambda: clock.sleep(0.05 / 12), power_control="off")
    used_j, used_s = device.energy_j() - before_j, device.wall.now_s() - before_s
    assert found.outcome.energy_j is not None
    assert found.outcome.energy_j == pytest.approx(DRAWN[200.0] * found.outcome.time_s)
    assert 0 < found.outcome.energy_j < used_j
    assert found.outcome.time_s == pytest.approx(4 * 0.05)
    assert found.outcome.time_s < used_s
    assert found.outcome.cause == "epochs"
    assert history()[0]["reached"], "without a target, all epochs are what was wanted"
    assert found.assignment.profile_w == ()
    assert device.limit_w() == 200.0


def test_limits_that_may_not_be_set_are_reported(device: SyntheticDevice) -> None:
    device.set_limit_w(170.0)
    found = train(power_control="off", eta=1)
    assert found.power_limit_w == found.outcome.power_limit_w == 170.0
    (row,) = history()
    assert (row["power_limit_w"], row["limit_set"]) == (170.0, False)
    assert device.limit_w() == 170.0


def test_limits_out_of_range_are_refused(device: SyntheticDevice) -> None:
    with pytest.raises(InputError, match="limit 90 W; allowed: 100 to 200 W"):
        train(power_limits_w=(90.0,))
    with pytest.raises(PolicyError, match=r"power limit 130 W .* there is 100, 125, 150, 175, 200"):
        train(tune=FixedPowerConfig(power_limit_w=130.0))


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


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        (50, True),
        pytest.param(0, True, marks=pytest.mark.slow),
        pytest.param(50, False, marks=pytest.mark.slow),
    ],
)
def test_sigterm_stops_a_session_and_the_next_one_resumes(
    device: SyntheticDevice, tmp_path: Path, steps: int, kept: bool
) -> None:
    log = tmp_path / "log"
    given = {**TERMS, "job": "mine", "log": str(log), "steps": steps, "kept": kept}
    given |= {"max_epochs": 6, "per_epoch": 0.2, "target": 1.15}
    slow = [sys.executable, str(PLAIN), json.dumps({**given, "epoch_s": 0.5, "marked": True})]
    process = subprocess.Popen(slow, stderr=subprocess.PIPE)
    until(lambda: len(lines(log, "step")) > 2 * max(steps, 1))
    process.terminate()
    finish(process, -signal.SIGTERM)
    assert device.limit_w() == 200.0
    (row,) = history()
    assert row["status"] == "stopped"
    done = row["epochs"]
    assert done >= 2

    fast = [sys.executable, str(PLAIN), json.dumps({**given, "epoch_s": 0.01})]
    finish(subprocess.Popen(fast, stderr=subprocess.PIPE), 0)
    (row,) = history()
    assert (row["cause"], row["attempt"]) == ("reached", 1)
    first = lines(log, "begun")[1:] and lines(log, "epoch")[done]
    assert first[2] == str(done + 1 if kept and steps else 1)
    assert (row["time_s"] > 1.0) == bool(kept and steps)
    assert not list(tmp_path.glob("state/*.checkpoints/*")), "the state is removed in the end"


class Place:
    """How far a training came."""

    def __init__(self) -> None:
        self.epoch = 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]


@pytest.mark.parametrize("again", ["before its first epoch", "in the middle of a step"])
def test_a_stop_keeps_the_state_of_an_earlier_stop(again: str, clock: ManualTime) -> None:
    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        place = Place()
        with session(eta=0, max_epochs=6) as first:
            first.keep(place=place)
            for epoch in first.epochs(steps=1):
                first.step()
                if epoch.number == 3:
                    stop()
                    first.step()
                place.epoch = epoch.number
                clock.sleep(0.01)
        assert (first.outcome.cause, first.outcome.epochs) == ("stopped", 2)
        with session(eta=0, max_epochs=6) as second:
            second.keep(place=Place())
            if again == "before its first epoch":
                stop()
            for epoch in second.epochs():
                if epoch.number == 4:
                    stop()
        assert (second.outcome.cause, second.outcome.epochs) == ("stopped", 2)
        assert second.outcome.time_s >= first.outcome.time_s
    finally:
        signal.signal(signal.SIGTERM, before)
    place = Place()
    with session(eta=0, max_epochs=6) as third:
        assert third.keep(place=place)
        assert place.epoch == 2
        assert [epoch.number for epoch in third.epochs()] == [3, 4, 5, 6]
    assert third.outcome.time_s >= second.outcome.time_s


def test_the_state_of_torch_objects_is_restored(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.support import session_torch

    log, store = tmp_path / "log", str(tmp_path / "store")
    passed_on: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: passed_on.append(number))
    try:

        def stop() -> None:
            until(lambda: len(lines(log, "epoch")) >= 2)
            os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=stop)
        thread.start()
        session_torch.main(store, log, 0.2)
        thread.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert passed_on == [signal.SIGTERM], "whoever handled it before does so in the end"
    (row,) = SessionStore(store).history("net")
    assert row["status"] == "stopped"
    session_torch.main(store, log, 0.0)
    _, again = lines(log, "begun")
    assert int(again[1]) == row["epochs"] >= 1
    assert int(again[2]) >= 4 * row["epochs"], "the optimizer goes on"
    assert [line[1] for line in lines(log, "ended")] == ["stopped", "epochs"]
    assert lines(log, "epoch")[-1][1] == "8"


def test_the_code_of_the_page_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("WATTKEEPER_DEVICE", "synthetic:SYN-250W")
    page = (Path(__file__).parents[3] / "docs/session.md").read_text(encoding="utf-8")
    script, look = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code = script + script + look  # in one process, since it takes seconds to load torch
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    said = done.stdout.splitlines()
    assert ["AttemptResult(cause=" in line for line in said] == [True, True, False, False]
    assert [line.split()[:3] for line in said[2:]] == [["1", "1", "64"], ["2", "1", "32"]]
    named = set(re.findall(r"`(\w+)`", page))
    assert set(inspect.signature(Session).parameters) - {"job"} <= named
    assert set(get_args(Cause)) <= named


RANKS = """
import sys, torch.distributed as dist
from wattkeeper.live import Session
dist.init_process_group("gloo")
rank = dist.get_rank()
with Session("mine", batch_sizes=(16, 32), default_batch_size=32, max_epochs=9, eta=0,
             target=3.0) as session:
    for epoch in session.epochs(range(4)):
        for _ in epoch:
            pass
        session.report(epoch.number if rank == 0 else 0.0)
with open(f"{sys.argv[1]}.{rank}", "w") as file:
    print(rank, session.batch_size, session.outcome.epochs, session.outcome.cause, file=file)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_rank_0_decides_for_all_processes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(RANKS)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*run, "train.py", "said"], cwd=tmp_path, check=True, capture_output=True)
    said = [(tmp_path / f"said.{rank}").read_text().split() for rank in (0, 1)]
    assert said == [["0", "32", "3", "reached"], ["1", "32", "3", "reached"]]
    assert [row["cause"] for row in history()] == ["reached"]


WARM = """
import sys, torch, torch.distributed as dist
from wattkeeper.live import Session
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
for recurrence in (1, 2):
    with Session("mine", batch_sizes=(16, 32), default_batch_size=32, max_epochs=2, eta=0,
                 target=1.0) as session:
        model = torch.nn.Linear(4, 2)
        report = session.warm_start(model, "zoo")
        with open(f"said.{rank}", "a") as file:
            print(report is not None, [w.tolist() for w in model.parameters()], file=file)
        for epoch in session.epochs(range(4)):
            with torch.no_grad():
                model.weight += 1
            session.report(1.0)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_all_processes_start_from_the_weights_of_rank_0(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from wattkeeper.live import Zoo

    (tmp_path / "train.py").write_text(WARM)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*run, "train.py"], cwd=tmp_path, check=True, capture_output=True)
    said = [(tmp_path / f"said.{rank}").read_text().splitlines() for rank in (0, 1)]
    assert said[0] == said[1], "both begin alike, with and without a parent"
    assert [line.split()[0] for line in said[0]] == ["False", "True"]
    zoo = Zoo(tmp_path / "zoo")
    models = zoo.models()
    assert [model.name for model in models] == ["mine-1.1", "mine-2.1"], "rank 0 alone adds"
    assert [model.parent for model in models] == [None, models[0].model_id]
    begun, trained = json.loads(said[0][1].partition(" ")[2]), zoo.load(models[0].model_id)
    assert torch.equal(torch.tensor(begun[0]), trained["weight"])


FAILING = """
import os, torch, torch.distributed as dist
from pathlib import Path
from wattkeeper.live import Session
from wattkeeper.policies.errors import WattkeeperError
dist.init_process_group("gloo")
rank = dist.get_rank()
Path("notes").mkdir(exist_ok=True)
Path("notes/mine.txt").touch()
terms = dict(batch_sizes=(16, 32), default_batch_size=32, max_epochs=2, eta=0)

def train(how):
    with Session(how, **terms, configure="magic" if how == "begins" else "zeus") as session:
        if how == "script" and rank == 0:
            raise ValueError("no data")
        session.warm_start(torch.nn.Linear(4, 2), "notes" if how == "zoo" else "zoo")
        for epoch in session.epochs(range(4)):
            for _ in epoch:
                if how == "step" and rank == 0:
                    raise ValueError("bad batch")
                if how == "gone" and rank == 0:
                    os._exit(1)
            session.report(1.0)

for how in ("begins", "zoo", "script", "step", "well", "gone"):
    try:
        train(how)
        said = "done"
    except (WattkeeperError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
    with open(f"said.{rank}", "a") as file:
        print(how, said, file=file)
"""


@pytest.mark.slow
def test_no_process_waits_for_a_rank_0_that_failed(tmp_path: Path) -> None:
    """Nothing but the session can tell: no torchrun ends them, and rank 0 lives on."""
    pytest.importorskip("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    both = [
        subprocess.Popen([sys.executable, "-c", FAILING], cwd=tmp_path, stderr=subprocess.PIPE,
                         env={**environment, "WORLD_SIZE": "2", "RANK": f"{rank}"})
        for rank in (0, 1)
    ]  # fmt: skip
    finish(both[0], 1)
    finish(both[1], 0)
    own = [line.split() for line in (tmp_path / "said.0").read_text().splitlines()]
    assert [words[:2] for words in own] == [
        ["begins", "InputError:"], ["zoo", "StoreError:"], ["script", "ValueError:"],
        ["step", "ValueError:"], ["well", "done"],
    ]  # fmt: skip
    said = (tmp_path / "said.1").read_text()
    follows = "EnvironmentLacks: the process of rank 0, which decides for all,"
    for how, why in (
        ("begins", "failed: no configure policy 'magic'"),
        ("zoo", f"failed: {tmp_path / 'notes'}: no zoo"),
        ("script", "failed: ValueError: no data"),
        ("step", "failed: ValueError: bad batch"),
        ("gone", "is gone ("),
    ):
        assert f"{how} {follows} {why}" in said
    assert "\nwell done\n" in said


def test_processes_that_are_not_connected_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"call torch.distributed.init_process_group\(\) before"):
        train(eta=0)


def test_a_state_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    from wattkeeper.live.session import checkpoint

    class Bad:
        def state_dict(self) -> Any:
            return {1, 2}

        def load_state_dict(self, state: Any) -> None:
            raise KeyError("x")

    code = (
        "from pathlib import Path; from wattkeeper.live.session.checkpoint import save\n"
        "class Bad:\n def state_dict(self): return {1}\n"
        "save(Path('x'), {'bad': Bad()})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert "the state of bad is not of JSON values" in done.stderr
    (tmp_path / "state.json").write_text('{"other": 1}')
    with pytest.raises(InputError, match=r"does not fit .* remove the file"):
        checkpoint.restore(tmp_path / "state.json", {"bad": Bad()})


# --- a zoo


def test_a_recurrence_starts_from_the_model_of_an_earlier_one(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from wattkeeper.live import TransferReport, Zoo

    def net(width: int) -> Any:
        nn = torch.nn
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

    def recur(model: Any, *older: Any, metric: float = 1.0) -> tuple[TransferReport | None, Any]:
        """What the session said, and what the model computed before it was trained."""
        with session(eta=0, target=1.0) as found:
            report = found.warm_start(model, tmp_path / "zoo", older=older)
            begun = model(x).detach()
            for _ in found.epochs():
                with torch.no_grad():
                    model[0].weight += 0.1
                found.report(metric)
        return report, begun

    x = torch.randn(5, 4)
    first, second, wider = net(8), net(8), net(16)
    assert recur(first)[0] is None, "the zoo is empty"
    report, begun = recur(second)
    assert report is not None
    assert report.preserved_in_eval
    assert torch.equal(begun, first(x))
    assert not torch.equal(begun, second(x)), "it was trained, and the zoo has what it was"
    recur(net(8), metric=0.5)
    models = Zoo(tmp_path / "zoo").models()
    assert [model.name for model in models] == ["mine-1.1", "mine-2.1"], "one missed its target"
    assert [model.parent for model in models] == [None, models[0].model_id]
    assert recur(net(12))[0] is None, "nobody said how the older ones are built"
    report, begun = recur(wider, net(8))
    parent = Zoo(tmp_path / "zoo").models()[-1].parent
    source = first if parent == models[0].model_id else second
    assert parent is not None
    assert report is not None
    assert torch.allclose(begun, source(x), atol=1e-5)


def test_any_policy_that_chooses_parents_can_be_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def recur(**terms: Any) -> int | None:
        """Number of the parent."""
        from wattkeeper.live import Zoo

        with session(eta=0, target=1.0) as found:
            found.warm_start(torch.nn.Linear(4, 2), tmp_path / "zoo", **terms)
            for _ in found.epochs():
                found.report(1.0)
        return Zoo(tmp_path / "zoo").models()[-1].parent

    assert [recur(policy="none"), recur(policy="none")] == [None, None]
    assert recur(policy="lineage") is None, "it is no mutation"
    assert recur(policy="lineage", mutated_from="mine-2.1") == 2
    assert recur(policy="random-parent") in {1, 2, 3, 4}
    assert recur(policy=ModelkeeperParentConfig(minimum=2.0)) is None
    with session(eta=0) as found, pytest.raises(InputError, match=r"'zeus'.*lineage, modelkeeper"):
        found.warm_start(torch.nn.Linear(4, 2), tmp_path / "zoo", policy="zeus")


def test_a_refusal_of_the_zoo_does_not_fail_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch")
    with session(eta=0, max_epochs=1) as found:
        found.warm_start(torch.nn.Linear(4, 2), tmp_path / "zoo")
        for _ in found.epochs():
            found.report(math.nan)
    assert "the zoo did not take mine-1.1: found the task 'mine' and the accuracy nan" in (
        caplog.text
    )
    assert [one["cause"] for one in history()] == ["epochs"]


@pytest.mark.parametrize("first", ["warm_start", "keep"])
def test_a_warm_start_does_not_undo_what_keep_restored(
    first: str, clock: ManualTime, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    from wattkeeper.live import Zoo
    from wattkeeper.live.weight_transfer.model_graph import trace
    from wattkeeper.live.weight_transfer.program.example_inputs import derive_inputs

    def recur(stops: bool = False) -> tuple[Session, bool, Any]:
        """The session, whether it took something from the zoo, and the weights it began with."""
        model = torch.nn.Linear(4, 2)
        with session(eta=0, target=1.0, configure=FixedConfig()) as found:
            if first == "keep":
                found.keep(model=model)
            report = found.warm_start(model, tmp_path / "zoo")
            if first == "warm_start":
                found.keep(model=model)
            begun = model.weight.detach().clone()
            for epoch in found.epochs(steps=1):
                with torch.no_grad():
                    model.weight += 1
                clock.sleep(0.01)
                found.step()
                if stops and epoch.number == found.assignment.epochs_done + 2:
                    os.kill(os.getpid(), signal.SIGTERM)
                    found.step()
                found.report(0.0 if stops else 1.0)
        return found, report is not None, begun

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        found, took, _ = recur()
        assert (found.reached, took) == (True, False), "the zoo was empty"
        stopped, took, at_first = recur(stops=True)
        assert (stopped.outcome.cause, stopped.outcome.epochs, took) == ("stopped", 1, True)
        other = Zoo(tmp_path / "zoo").models()[0]
        graph = trace(torch.nn.Linear(4, 2), derive_inputs(torch.nn.Linear(4, 2)), "mine").graph
        better = {"weight": torch.zeros(2, 4), "bias": torch.zeros(2)}
        Zoo(tmp_path / "zoo").add(graph, better, task="mine", accuracy=2.0, name="better")
        again, took, at_second = recur()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (again.assignment.recurrence, again.reached, took) == (2, True, False)
    assert torch.equal(at_second, at_first + 2), "what it had become when it was stopped"
    models = {model.name: model for model in Zoo(tmp_path / "zoo").models()}
    assert models["mine-2.1"].parent == other.model_id, "not what is the best parent by now"
    assert models["better"].uses == 0


def test_a_zoo_needs_an_accuracy_and_a_folder_of_its_own(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 2)
    (tmp_path / "notes.txt").write_text("no zoo")
    refused = pytest.raises(InputError, match="takes the larger metric")
    with session(eta=0, higher_is_better=False) as found, refused:
        found.warm_start(model, tmp_path / "zoo")
    with session(eta=0) as found, pytest.raises(StoreError, match=r"notes\.txt|no zoo"):
        found.warm_start(model, tmp_path)

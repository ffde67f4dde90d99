"""Sessions on a synthetic device: power limits and energy."""

from __future__ import annotations

import pytest

from tests.support.clocks import ManualTime
from tests.support.messages import assert_states
from tests.support.nvml import Driver, on_gpus
from tests.support.sessions import DRAWN, history, session, train
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.host import wall_clock
from wattkeeper.live.session.arguments import power_limit_steps
from wattkeeper.live.session.local_coordinator import LocalCoordinator
from wattkeeper.live.wire.messages import ProfileReport
from wattkeeper.policies.configure.fixed import FixedConfig
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.points.views import Measurement, Slice
from wattkeeper.policies.tune.fixed_power import FixedPowerConfig


def listen(monkeypatch: pytest.MonkeyPatch) -> list[Measurement]:
    """What sessions report of power limits."""
    found: list[Measurement] = []
    ask = LocalCoordinator.report_profile

    def report_profile(guide: LocalCoordinator, report: ProfileReport) -> float | Slice | None:
        found.extend(report.measurements)
        return ask(guide, report)

    monkeypatch.setattr(LocalCoordinator, "report_profile", report_profile)
    return found


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
    found = listen(monkeypatch)
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


@on_gpus(1)
def test_limits_are_measured_for_longer_than_a_counter_stands_still(driver: Driver) -> None:
    """A share of the epoch, of 13 steps, is about as long as it stands still."""

    class DriversTime:
        def monotonic(self) -> float:
            return driver.now_s()

    driver.gpu.counter_s = 0.1
    limits_w = tuple(range(100, 300, 20))
    steps, step_s = 130, 0.009
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wall_clock, "time", DriversTime())
        found = listen(patch)
        with session(power_limits_w=limits_w, max_epochs=20) as one:
            for epoch in one.epochs(range(steps)):
                for _ in epoch:
                    driver.advance(step_s)
                driver.advance(0.5)
    assert [m.power_limit_w for m in found] == [*reversed(limits_w)]
    for each in found:
        assert each.average_power_w == pytest.approx(each.power_limit_w, rel=0.1)
        assert each.time_per_epoch_s == pytest.approx(steps * step_s)
    assert one.outcome.limit_set


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


@pytest.mark.parametrize("done", [(0,), (1,), (29,), (12, 1), (2, 1000)])
def test_epochs_may_have_other_steps_than_announced(
    clock: ManualTime,
    device: SyntheticDevice,
    monkeypatch: pytest.MonkeyPatch,
    done: tuple[int, ...],
) -> None:
    reported = listen(monkeypatch)
    with session(power_limits_w=tuple(DRAWN), max_epochs=20) as found:
        for epoch in found.epochs(steps=30):
            for _ in range(done[min(epoch.number, len(done)) - 1]):
                clock.sleep(0.1)
                found.step()
            clock.sleep(0.1)
    assert [each.power_limit_w for each in reported] == [200.0, 150.0, 100.0]
    for each in reported:
        assert each.average_power_w == pytest.approx(DRAWN[each.power_limit_w])
        assert each.time_per_epoch_s == pytest.approx(reported[0].time_per_epoch_s)
    assert found.power_limit_w == history()[0]["power_limit_w"]


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


def test_millions_of_limits_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        power_limit_steps(100.0, 1e8)
    assert_states(str(caught.value), "3,999,997 power limits", "at most 10,000")
    with pytest.raises(InputError) as caught:
        session(power_limits_w=(100.0,) * 4_000_000)
    assert_states(str(caught.value), "4,000,000 power limits", "at most 10,000")

"""Forecasts of signals, and what all of them keep."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.carbon import read_hist, read_rows
from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.forecasting import ForecastConfig, KnownSignal
from wattkeeper.policies.forecasts.chase_svr import ChaseSvrConfig
from wattkeeper.policies.forecasts.day_before import DayBeforeConfig
from wattkeeper.policies.forecasts.history import HistoryConfig
from wattkeeper.policies.forecasts.noisy import NoisyConfig
from wattkeeper.policies.forecasts.perfect import PerfectConfig
from wattkeeper.policies.forecasts.persistence import PersistenceConfig
from wattkeeper.policies.parts import FORECASTS, parts

QUARTER_S = 21_600.0
"""Four slots a day."""

every_forecast = pytest.mark.parametrize(
    "config", [config.model_validate({}) for config in parts(FORECASTS).values()], ids=str
)


def known(
    *values: float, slot: int = 0, truth: Floats | None = None, slot_s: float = QUARTER_S
) -> KnownSignal:
    return KnownSignal(np.array(values), slot_s, slot, truth, lambda: np.random.default_rng(7))


def test_persistence() -> None:
    assert PersistenceConfig().build().predict(known(3, 1, 2), 3).tolist() == [2, 2, 2]


def test_day_before_repeats_the_last_day() -> None:
    forecast = DayBeforeConfig().build()
    assert forecast.predict(known(9, 9, 1, 2, 3, 4), 7).tolist() == [4, 1, 2, 3, 4, 1, 2]
    assert forecast.predict(known(3, 4), 6).tolist() == [4, 4, 4, 3, 4, 4], "unknown times"


def test_history_adds_the_present_deviation_which_fades() -> None:
    values = [100, 1, 2, 3, 4, 3, 4, 5, 8]
    forecast = HistoryConfig(days=2, fade_s=QUARTER_S / 2).build()
    means = np.array([6, 2, 3, 4])
    wanted = np.concatenate([means, means])[:6] + 2 * np.exp(-2 * np.arange(6))
    assert forecast.predict(known(*values), 6) == pytest.approx(wanted)
    assert forecast.predict(known(1, 5), 4) == pytest.approx([5, 5, 5, 1]), "unknown times"


def test_noisy_has_the_stated_errors_for_a_day_and_then_history() -> None:
    day, past, truth = 96, np.linspace(50, 60, 960), np.full(400, 100.0)
    forecast, history = NoisyConfig().build(), HistoryConfig().build()
    drawn = []
    for seed in range(400):
        seen = KnownSignal(past, 900.0, 5, truth, partial(np.random.default_rng, seed))
        predicted = forecast.predict(seen, 200)
        assert predicted[0] == 100
        assert predicted[day:].tolist() == history.predict(seen, 200)[day:].tolist()
        assert forecast.predict(seen, 200).tolist() == predicted.tolist()
        assert forecast.predict(seen, 20).tolist() == predicted[:20].tolist()
        drawn.append(predicted[:day] / 100 - 1)
    errors = np.array(drawn)
    assert errors[:, 1].std() == pytest.approx(0.02, rel=0.15)
    assert errors[:, -1].std() == pytest.approx(0.02 / (1 - 0.97**2) ** 0.5, rel=0.15)
    assert np.corrcoef(errors[:, -1], errors[:, -2])[0, 1] == pytest.approx(0.97, abs=0.02)


def test_noisy_goes_on_from_the_end_of_the_day_where_asked() -> None:
    truth = np.array([50.0, 50, 50, 90, 0, 0, 0, 0, 0])
    seen = known(*[40.0, 50, 60, 50] * 3, truth=truth)
    forecast = NoisyConfig(error=0, fade_s=2 * QUARTER_S).build()
    means = np.array([50, 40, 50, 60, 50, 40, 50, 60, 50])
    deviation = 30 * np.exp(-0.5 * np.arange(1, 6))
    wanted = [50, 50, 50, 90, *(means[4:] + deviation)]
    assert forecast.predict(seen, 9) == pytest.approx(wanted)


def test_perfect_is_the_truth_or_an_error() -> None:
    truth = np.array([5.0, 6.0, 7.0])
    assert PerfectConfig().build().predict(known(5, truth=truth), 2).tolist() == [5, 6]
    with pytest.raises(PolicyError, match="needs 4 true values from slot 2 on; there are 3"):
        PerfectConfig().build().predict(known(5, truth=truth, slot=2), 4)
    with pytest.raises(PolicyError, match="true values"):
        NoisyConfig().build().predict(known(5), 4)


def test_a_slot_that_does_not_divide_a_day_is_refused() -> None:
    for slot_s in (7000.0, 100_000.0, float("nan")):
        with pytest.raises(InputError, match="'history' of the signal 'carbon' needs slots"):
            HistoryConfig().check("carbon", slot_s, 100)
        PersistenceConfig().check("carbon", slot_s, 0)
    HistoryConfig().check("carbon", 900.0, 0)
    with pytest.raises(InputError, match=r"trained on the 48 slots before the run; .* 47 there"):
        ChaseSvrConfig().check("carbon", 1800.0, 47)


@every_forecast
@given(values=st.lists(st.floats(-500, 1000), min_size=6, max_size=40), slots=st.integers(1, 20))
def test_forecasts_are_finite_and_deterministic(
    config: ForecastConfig, values: list[float], slots: int
) -> None:
    truth = np.linspace(1, 2, 30)
    seen = known(*values, truth=truth)
    first = config.build().predict(seen, slots)
    assert first.shape == (slots,)
    assert np.isfinite(first).all()
    assert config.build().predict(seen, slots).tobytes() == first.tobytes()
    assert seen.values.tolist() == values, "what is known was changed"
    longer = config.build().predict(seen, slots + 3)
    assert longer[:slots].tolist() == first.tolist()


@every_forecast
def test_forecasts_say_whether_they_read_the_truth(config: ForecastConfig) -> None:
    """A forecast without foresight is the same whatever is to come."""
    assert bool(config.assumption) == config.needs_foresight
    values = np.linspace(3, 7, 12)
    rising, falling = np.linspace(7, 20, 30), np.linspace(7, 0, 30)
    one, other = (config.build().predict(known(*values, truth=t), 9) for t in (rising, falling))
    assert (one.tolist() == other.tolist()) != config.needs_foresight


def test_chase_svr_equals_the_reference(shared: Path) -> None:
    series = read_hist(shared)
    log = read_rows(shared / "reference/chase/log_chase_bs128_eta0.24_5W-pchip.csv")
    forecast = ChaseSvrConfig().build()
    assert len(log) > 30
    for row in log:
        step = int(row["step"])
        seen = KnownSignal(series[: step + 1], 1800.0, step - 60)
        predicted = forecast.predict(seen, 3)
        assert predicted[0] == pytest.approx(float(row["ci_forecast"]), abs=1e-3)
        blind = KnownSignal(np.append(series[:step], 1e9), 1800.0, step - 60)
        assert forecast.predict(blind, 1)[0] == predicted[0], "it read the slot that it predicts"


def test_chase_svr_is_trained_anew_where_asked() -> None:
    series = 400 + 100 * np.sin(np.arange(960) / 9) + np.arange(960) / 3

    def predict(slot: int, retrain_slots: int | None = None) -> float:
        seen = KnownSignal(series[: 101 + slot], 1800.0, slot)
        return float(ChaseSvrConfig(retrain_slots=retrain_slots).build().predict(seen, 1)[0])

    assert predict(95, retrain_slots=96) == predict(95)
    assert predict(96, retrain_slots=96) != predict(96)
    wrong, right = abs(predict(800) - series[900]), abs(predict(800, retrain_slots=1) - series[900])
    assert right < wrong
    with pytest.raises(PolicyError, match="needs 48 values before the run; there are 40"):
        ChaseSvrConfig().build().predict(KnownSignal(series[:41], 1800.0), 1)


def test_a_kind_that_is_taken_is_refused() -> None:
    with pytest.raises(PolicyError, match="two forecasts are called 'history'"):

        class Impostor(ForecastConfig):
            kind: Literal["history"] = "history"

    assert parts(FORECASTS)["history"] is HistoryConfig

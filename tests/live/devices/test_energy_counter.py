"""What `benchmarks/energy_counter.py` makes of readings."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.energy_counter import Record, compare_power, describe, short_readings

EVERY_S = 0.1


@pytest.fixture
def record() -> Record:
    """A GPU at 200 W, read every 4 ms, whose counter is updated every 0.1 s."""
    times_s = np.arange(0, 15, 0.004)
    counted_j = 200 * EVERY_S * np.floor(times_s / EVERY_S)
    return Record(times_s, counted_j, np.full(len(times_s), 200.0), [0.003] * len(times_s))


def test_power_by_the_counter_is_that_which_is_integrated(record: Record) -> None:
    assert compare_power("constant", record) == "| constant | 15 s | 200.0 W | +0.00 % |"


def test_power_that_is_told_too_high_shows(record: Record) -> None:
    told = record._replace(powers_w=1.02 * record.powers_w)
    assert compare_power("constant", told) == "| constant | 15 s | 200.0 W | +2.00 % |"


def test_short_readings_miss_up_to_an_update(record: Record) -> None:
    cells = short_readings("constant", record).split(" | ")[1:]
    most = [float(cell.split("(")[1].split(" %")[0]) / 100 for cell in cells]
    for span_s, found in zip((0.1, 0.2, 0.5, 1.0, 2.0), most, strict=True):
        assert found == pytest.approx(EVERY_S / span_s, rel=0.1)


def test_intervals_are_described_by_median_and_spread() -> None:
    assert describe([0.1] * 90 + [0.2] * 10) == "0.1000 s (90 % from 0.1000 to 0.2000 s)"

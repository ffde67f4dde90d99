"""What a run records comes back by name, whichever way its numbers were written."""

import math

import numpy as np

from wattkeeper.sim.recording.recorder import Recorder
from wattkeeper.sim.recording.row_types import (
    AttemptRow,
    DrawRow,
    HoldRow,
    LossRow,
    PauseRow,
    PowerChangeRow,
    TrainingRow,
)


def recorder_of(attempts: int) -> Recorder:
    recorder = Recorder()
    for number in range(attempts):
        recorder.add_attempt(number, 1.5, 2.5, 3.5, 4.5, 5.5, 6, 2**40)
    return recorder


def test_numbers_written_one_by_one_are_those_of_the_row() -> None:
    recorder = recorder_of(1)
    row = AttemptRow(0, 1.5, 2.5, 3.5, 4.5, 5.5, where=6, power=2**40)
    assert {name: recorder.column(name).item() for name in row._fields} == row._asdict()
    recorder.add_pause(3, 4.0, math.inf)
    assert [column.item() for column in recorder.events(PauseRow)] == [3, 4.0, math.inf]
    recorder.add_power_change(3, 7.0, -(2**40))
    assert [column.item() for column in recorder.events(PowerChangeRow)] == [3, 7.0, -(2**40)]


def test_attempts_without_a_row_have_its_defaults() -> None:
    recorder = recorder_of(2)
    assert not recorder.has(TrainingRow)
    assert recorder.column("attempt").tolist() == [1, 1]
    recorder.add_detail(TrainingRow(3, batch_size=32))
    recorder.add_attempt(2, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0)
    assert recorder.has(TrainingRow)
    assert recorder.column("attempt").tolist() == [1, 3, 1]
    assert recorder.column("batch_size", 1, 3).tolist() == [32, -1]
    assert np.isnan(recorder.column("power_limit_w")).all()


def test_a_later_row_about_an_attempt_replaces_the_former() -> None:
    recorder = recorder_of(2)
    recorder.add_detail(LossRow(5, 1.0, 2.0), 0)
    recorder.add_detail(LossRow(6, 3.0, 4.0), 0)
    assert recorder.column("lost_node").tolist() == [6, -1]


def test_rows_of_many_blocks_are_found_by_attempt() -> None:
    recorder = recorder_of(1)
    for number in range(1, 20_000):
        recorder.add_attempt(number, 0.0, 1.0, 0.0, 1.0, 0.0, 0, 0)
        for draw in DrawRow.spans([(0.0, 10.0), (0.5, 0.0), (0.75, float(number))], 1.0):
            recorder.add_detail(draw)
    drawn = recorder.details(DrawRow).among(15_000, 15_002)
    assert drawn["about"].tolist() == [0, 0, 1, 1]
    assert drawn["energy_j"].tolist() == [5.0, 15_000 / 4, 5.0, 15_001 / 4]


def test_an_unused_kind_has_no_rows() -> None:
    assert [len(column) for column in Recorder().events(HoldRow)] == [0, 0, 0]

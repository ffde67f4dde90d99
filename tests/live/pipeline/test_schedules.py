"""Sessions under all schedules, on emulated devices: iterations take what a simulation says."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Literal

import pytest

from tests.support.live_pipelines import made_up_table
from wattkeeper.live.devices import VARIABLE
from wattkeeper.live.pipeline.emulation import EmulatedPipeline, make_devices
from wattkeeper.live.pipeline.session import PipelineSession
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.task import PipelineTask

pytestmark = pytest.mark.slow

Kind = Literal["1f1b", "gpipe", "interleaved"]
RANKS, MICROBATCHES = 2, 4


def train(rank: int, kind: Kind, chunks: int, folder: Path) -> None:
    """Compute nothing: the ranks wait for each other by the emulated clock alone."""
    emulated = EmulatedPipeline(made_up_table(RANKS * chunks))
    devices = make_devices(folder / f"rank-{rank}", "emulated", 1, emulated.clocks_mhz)
    os.environ[VARIABLE] = devices
    with PipelineSession(
        "mine",
        microbatches=MICROBATCHES,
        iterations=7,
        schedule=kind,
        chunks=chunks,
        clocks_mhz=[810, 1110, 1410],
        profile_iterations=1,
        output=folder / "results",
        emulate=emulated,
    ) as pipeline:
        for _ in pipeline.iterations():
            for instruction in pipeline.program:
                with pipeline.instruction(instruction):
                    pass


@pytest.mark.parametrize(("kind", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 2)])
def test_iterations_take_what_a_simulation_says(kind: Kind, chunks: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from wattkeeper.live.examples.pipeline_processes import run_ranks

    assert run_ranks(functools.partial(train, kind=kind, chunks=chunks, folder=tmp_path), RANKS)
    results = json.loads((tmp_path / "results" / "pipeline.json").read_text())
    schedule = PipelineSchedule(kind, RANKS, MICROBATCHES, chunks)
    task = PipelineTask(made_up_table(RANKS * chunks), schedule)
    (plan,) = results["plans"]
    plans = [task.plan_at(clock_mhz) for clock_mhz in (1410, 1110, 810) for _ in range(2)]
    plans.append(tuple(map(tuple, plan)))
    assert plans[-1] not in plans[:-1]
    for record, clocks in zip(results["iterations"], plans, strict=True):
        expected = task.execute(clocks)
        assert record["time_s"] == pytest.approx(expected.time_s)
        assert sum(record["energy_j"]) == pytest.approx(expected.energy_j)

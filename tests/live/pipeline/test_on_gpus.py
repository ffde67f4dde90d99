"""The session of a pipeline on GPUs, through the real pynvml, with a driver of the tests' own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.messages import assert_states
from tests.support.nvml import Driver, on_gpus
from wattkeeper.live.pipeline.session import PipelineSession
from wattkeeper.policies.errors import EnvironmentLacks

pytest.importorskip("torch")

CLOCKS = (810, 1110, 1410)


def output() -> Path:
    """A folder of the test."""
    return Path(os.environ["WATTKEEPER_STATE"]) / "results"


def session() -> PipelineSession:
    """One of a stage alone."""
    from torch import distributed
    from torch.distributed import HashStore  # type: ignore[attr-defined]

    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    return PipelineSession(
        "mine",
        microbatches=2,
        iterations=8,
        clocks_mhz=CLOCKS,
        profile_iterations=1,
        blocking_power_w=50,
        tune="pipeline-exact",
        output=output(),
    )


def locked(driver: Driver) -> tuple[int, int]:
    """The ranges that both GPUs are locked to, MHz; 0: not at all, -1: not to one clock."""
    clocks = [
        gpu.lowest_lock_mhz if gpu.lowest_lock_mhz == gpu.highest_lock_mhz else -1
        for gpu in driver.state.gpu[:2]
    ]
    return clocks[0], clocks[1]


def compute(driver: Driver) -> None:
    """Draw power for some time, which is real; the driver's time is its own."""
    driver.advance(0.1)


@on_gpus(2)
def test_the_clocks_of_the_plan_are_locked(driver: Driver) -> None:
    seen = []
    with session() as pipeline:
        assert locked(driver) == (0, 0)
        for _ in pipeline.iterations():
            for place, instruction in enumerate(pipeline.program):
                with pipeline.instruction(instruction):
                    clock_mhz = pipeline.order.plan[0][place]
                    assert locked(driver) == (clock_mhz, clock_mhz)
                    compute(driver)
            seen.append(pipeline.order)
        assert pipeline.leader is not None
        profile = pipeline.leader.profile
    assert locked(driver) == (0, 0)
    assert [order.measures for order in seen] == [True] * 6 + [False] * 2
    assert [order.plan[0][0] for order in seen[:6:2]] == [1410, 1110, 810]
    assert profile is not None
    (stage,) = profile.stages
    assert stage.gpus == 2
    assert [point.frequency_mhz for point in stage.backward] == [1410, 1110, 810]
    for point in stage.forward:
        assert point.energy_j == pytest.approx(2 * 300 * 0.1)
    assert (output() / "profile.csv").read_text().count("\n") == 7


@on_gpus(2)
def test_clocks_are_unlocked_after_an_error(driver: Driver) -> None:
    def fail() -> None:
        with session() as pipeline:
            for _ in pipeline.iterations():
                with pipeline.instruction(pipeline.program[0]):
                    assert locked(driver) == (1410, 1410)
                    raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        fail()
    assert locked(driver) == (0, 0)
    assert "no data" in (output() / "pipeline.json").read_text()


@on_gpus(2)
def test_a_user_who_may_not_lock_clocks_is_told(driver: Driver) -> None:
    driver.state.gpu[1].may_lock = 0
    with pytest.raises(EnvironmentLacks) as lacks, session():
        pass
    assert_states(str(lacks.value), "GPU 1", "root", "clocks")
    assert locked(driver) == (0, 0)

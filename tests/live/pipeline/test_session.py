"""The session of a pipeline of one stage, and what its ranks tell each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_pipelines import made_up_table
from tests.support.messages import assert_states
from wattkeeper.live.devices import VARIABLE
from wattkeeper.live.pipeline.emulation import EmulatedPipeline, make_devices
from wattkeeper.live.pipeline.exchange import StageExchange
from wattkeeper.live.pipeline.session import PipelineSession
from wattkeeper.policies.errors import EnvironmentLacks, InputError

pytest.importorskip("torch")
from torch import distributed
from torch.distributed import HashStore  # type: ignore[attr-defined]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedPipeline]:
    """This process is the only rank, on an emulated device."""
    emulated = EmulatedPipeline(made_up_table(1))
    devices = make_devices(tmp_path / "devices", "emulated", 1, emulated.clocks_mhz)
    monkeypatch.setenv(VARIABLE, devices)
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield emulated
    distributed.destroy_process_group()


def session(emulated: EmulatedPipeline | None, iterations: int = 3) -> PipelineSession:
    return PipelineSession(
        "mine",
        microbatches=2,
        iterations=iterations,
        clocks_mhz=[1410],
        profile_iterations=1,
        blocking_power_w=75,
        emulate=emulated,
    )


def train(session: PipelineSession, numbers: list[int]) -> None:
    """Do some instructions of the program in each iteration, by their numbers."""
    with session as pipeline:
        for _ in pipeline.iterations():
            for number in numbers:
                with pipeline.instruction(pipeline.program[number]):
                    pass


def test_a_stage_alone_runs_its_program(alone: EmulatedPipeline) -> None:
    with session(alone) as pipeline:
        assert [each.kind for each in pipeline.program] == ["forward", "backward"] * 2
        measures = []
        for _ in pipeline.iterations():
            measures.append(pipeline.order.measures)
            for instruction in pipeline.program:
                with pipeline.instruction(instruction):
                    pass
        assert measures == [True, True, False]
        assert pipeline.leader is not None
        records = pipeline.leader.records
    assert [record.number for record in records] == [1, 2, 3]
    assert records[0].time_s == pytest.approx(2 * (0.05 + 0.1))
    assert records[0].energy_j == pytest.approx((300 * records[0].time_s,))


def test_sessions_one_after_the_other(alone: EmulatedPipeline, tmp_path: Path) -> None:
    train(session(alone), [0, 1, 2, 3])
    with pytest.raises(InputError) as refused:
        train(session(alone), [0, 1, 2, 3])
    assert_states(str(refused.value), "gpu-0", "used before")
    make_devices(tmp_path / "devices", "emulated", 1, alone.clocks_mhz)
    train(session(alone), [0, 1, 2, 3])
    make_devices(tmp_path / "devices", "emulated", 1, alone.clocks_mhz)
    with session(alone) as left:
        for _ in left.iterations():
            break
    assert left.leader is not None
    assert left.leader.records == []


def test_instructions_out_of_order_are_refused(alone: EmulatedPipeline) -> None:
    with pytest.raises(InputError) as refused:
        train(session(alone), [1])
    assert_states(str(refused.value), "kind='backward'", "kind='forward'", "rank 0")


def test_an_iteration_that_leaves_instructions_out_is_refused(alone: EmulatedPipeline) -> None:
    with pytest.raises(InputError) as refused:
        train(session(alone), [0])
    assert_states(str(refused.value), "iteration 1", "1 of 4", "kind='backward'")


def test_synthetic_devices_need_a_table(alone: EmulatedPipeline) -> None:
    with pytest.raises(InputError) as refused, session(None):
        pass
    assert_states(str(refused.value), "synthetic", "emulate")


def test_a_table_needs_synthetic_devices(
    alone: EmulatedPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "none")
    with pytest.raises(InputError) as refused, session(alone):
        pass
    assert_states(str(refused.value), VARIABLE)
    with pytest.raises(EnvironmentLacks) as lacks, session(None):
        pass
    assert_states(str(lacks.value), "energy")


def test_a_session_needs_connected_processes() -> None:
    with pytest.raises(InputError) as refused:
        session(None)
    assert_states(str(refused.value), "init_process_group")


def join(store: object, rank: int, patience_s: float = 60.0) -> StageExchange:
    return StageExchange(store, "test", rank, 2, patience_s)  # type: ignore[arg-type]


def test_ranks_gather_and_share() -> None:
    store = HashStore()
    shared = []

    def follow() -> None:
        follower = join(store, 1)
        for number in range(3):
            assert follower.gather(10 + number) == []
            shared.append(follower.share(None, int))

    thread = threading.Thread(target=follow)
    leader = join(store, 0)
    thread.start()
    for number in range(3):
        values = leader.gather(number)
        assert leader.share(sum(values), int) == sum(values)
    thread.join()
    assert shared == [10, 12, 14]


def test_a_rank_that_failed_is_named() -> None:
    store = HashStore()
    leader, follower = join(store, 0), join(store, 1)
    follower.leave("failed: no memory")
    with pytest.raises(EnvironmentLacks) as lacks:
        leader.gather(1)
    assert_states(str(lacks.value), "rank 1", "failed: no memory")


def test_a_rank_that_ended_without_a_word_is_named() -> None:
    store = HashStore()
    leader, follower = join(store, 0), join(store, 1)
    *_, pid, ticks = leader.identity.split(" ")
    follower.publish("who/1", leader.identity.replace(f"{pid} {ticks}", f"{pid} {int(ticks) - 1}"))
    with pytest.raises(EnvironmentLacks) as lacks:
        leader.gather(1)
    assert_states(str(lacks.value), "rank 1", "ended")


def test_a_rank_that_hangs_is_given_up() -> None:
    store = HashStore()
    leader, _ = join(store, 0, 0.05), join(store, 1)
    with pytest.raises(EnvironmentLacks) as lacks:
        leader.gather(1)
    assert_states(str(lacks.value), "0.05 s", "hangs")

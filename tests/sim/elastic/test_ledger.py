"""The ledger of steps, alone and as a simulated training keeps it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.elastic.test_elastic_worlds import Drawn, worlds
from tests.support.examples import examples
from wattkeeper.sim.elastic.ledger import StepLedger
from wattkeeper.sim.elastic.training import ElasticTraining

counts = st.integers(0, 9)
times = st.floats(0, 50)
events = st.lists(
    st.one_of(
        st.tuples(st.just("train"), counts, times),
        st.tuples(st.just("commit"), counts, times),
        st.tuples(st.sampled_from(["lost", "kept", "carried", "open"]), counts, times),
        st.tuples(st.just("resume"), counts, times),
    ),
    max_size=30,
)


@given(happens=events)
def test_each_finished_step_is_committed_or_lost_or_goes_on(
    happens: list[tuple[str, int, float]],
) -> None:
    """Against a list of steps, each of which has its state."""
    ledger = StepLedger(math.inf)
    states: list[str] = []
    committed = lost_steps = 0

    def put(before: str, after: str, number: int) -> None:
        for _ in range(number):
            states[states.index(before)] = after

    for what, number, span_s in happens:
        going_on, fruitless = states.count("finished"), ledger.fruitless
        if what == "train":
            states += ["finished"] * number
            ledger.finish(number)
            ledger.steps_s += span_s
            ledger.spent.steps_s += span_s
        elif what == "commit":
            ledger.fruitless += 1
            steps = min(number, going_on)
            ledger.commit(steps)
            put("finished", "committed", steps)
            assert ledger.fruitless == (0 if steps else fruitless + 1)
        elif what == "resume":
            if not going_on:
                ledger.go_on_from(number)
                known = states.count("committed")
                states += ["committed"] * (number - known)
                put("committed", "lost", known - number)
        else:
            spent = ledger.close_shape(what)  # type: ignore[arg-type]
            committed, lost_steps = committed + spent.committed, lost_steps + spent.lost_steps
            assert spent.lost_s + spent.open_s + spent.carried_s <= spent.steps_s * (1 + 1e-9)
            if what in ("lost", "kept"):
                put("finished", "lost" if what == "lost" else "committed", going_on)
            assert not ledger.spent.steps_s + ledger.steps_s
        assert (ledger.committed, ledger.uncommitted, ledger.lost) == tuple(
            states.count(each) for each in ("committed", "finished", "lost")
        )
        assert ledger.steps == len(states) - ledger.lost
    assert committed + ledger.spent.committed == ledger.committed
    assert lost_steps + ledger.spent.lost_steps == ledger.lost


@settings(deadline=None, max_examples=examples(100))
@given(drawn=worlds())
def test_the_ledger_of_a_simulated_training_is_that_of_its_shapes(drawn: Drawn) -> None:
    ledgers: dict[int, StepLedger] = {}
    begin = ElasticTraining.go_on

    def go_on(training: ElasticTraining, delay_s: float) -> None:
        ledgers[training.attempt.job.number] = training.ledger
        begin(training, delay_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ElasticTraining, "go_on", go_on)
        world = drawn.run()
    for number, ledger in ledgers.items():
        batch = drawn.tasks[number].batch
        rows = [row for row in world.recorder.shapes if row.number == number]
        assert math.fsum(row.samples for row in rows) == ledger.committed * batch
        assert math.fsum(row.lost_samples for row in rows) == ledger.lost * batch
        if any(one.event == "degraded" for one in drawn.changes):
            continue
        trained_s = [(row.steps_s, row.samples_per_s / batch) for row in rows if row.steps_s]
        steps = math.fsum(span_s * rate for span_s, rate in trained_s)
        finished = ledger.committed + ledger.uncommitted + ledger.lost
        assert finished - 1e-6 <= steps <= finished + len(trained_s) + 1e-6

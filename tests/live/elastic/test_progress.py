"""The ledger of steps, as a live elastic training keeps it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.live.elastic.groups import Origin
from wattkeeper.live.elastic.progress import TrainingProgress
from wattkeeper.policies.points.replan import Reshape, Shape

counts = st.integers(0, 9)


class Live:
    """A live training that is told what happens, as its coordinator does."""

    def __init__(self, folder: Path) -> None:
        self.progress = TrainingProgress("e", 1_000, 10, folder, folder / "state.pt")
        self.now_s = 0.0

    def shape(self, steps: int) -> None:
        """Form a group that goes on from a state after so many steps, in 2 s."""
        change = Reshape(Shape(2, 10.0), 2.0)
        self.progress.open_shape(self.now_s, "start", change)
        self.progress.resume(Origin(steps), 0)
        self.now_s += 2
        self.progress.switch("steps", self.now_s)

    def train(self, steps: int) -> None:
        """Finish steps of a second."""
        for _ in range(steps):
            self.now_s += 1
            self.progress.finish_step(float(len(self.progress.losses)))


@given(shapes=st.lists(st.tuples(counts, counts, st.booleans(), st.integers(-3, 2)), max_size=6))
def test_the_ledger_of_a_live_training_is_that_of_its_shapes(
    shapes: list[tuple[int, int, bool, int]],
) -> None:
    """Each commits some steps and may lose others; the next goes on from an odd state."""
    live = Live(Path("unused"))
    progress, ledger = live.progress, live.progress.ledger
    finished = 0
    for committed, more, is_lost, odd in shapes:
        state = max(0, ledger.committed + odd)
        finished += max(0, state - ledger.committed)
        live.shape(state)
        live.train(committed)
        progress.commit(live.now_s)
        live.train(more)
        finished += committed + more
        if is_lost:
            progress.close_shape(live.now_s, "lost")
            assert len(progress.losses) == ledger.steps
        else:
            progress.commit(live.now_s)
            progress.close_shape(live.now_s)
        row = progress.shapes[-1]
        assert (row.pause_s, row.steps_s, row.lost_s) == (2, committed + more, is_lost * more)
    assert finished == ledger.committed + ledger.uncommitted + ledger.lost
    assert sum(row.samples for row in progress.shapes) == ledger.committed * 10
    assert sum(row.lost_samples for row in progress.shapes) == ledger.lost * 10

"""What an elastic training has done: its steps, what of them is committed, and its shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from wattkeeper.live.elastic.groups import Origin, SavedState
from wattkeeper.live.elastic.records import ShapeRecord
from wattkeeper.policies.points.replan import Reshape

Activity = Literal["pause", "steps", "write"]
"""What a training does: it changes its shape, trains, or writes a checkpoint."""


class TrainingProgress:
    """See the module.

    Args:
        job: Name of the training.
        wanted: Its steps.
        batch: Samples of a step.
        folder: For its checkpoints.
        final_path: File of its state after the last step.

    Attributes:
        job: Name of the training.
        final_path: File of its state after the last step.
        wanted: Its steps.
        steps: Finished steps.
        committed: Steps that no loss of nodes undoes, as long as a worker has their state.
        lost_steps: Finished steps that were lost.
        losses: Mean loss of each finished step.
        saved: The last checkpoint in storage.
        shapes: Its shapes that ended.
        since_s: Since when it does what it does, s.
    """

    def __init__(self, job: str, wanted: int, batch: int, folder: Path, final_path: Path) -> None:
        self._batch, self._folder = batch, folder
        self.job, self.wanted, self.final_path = job, wanted, final_path
        self.steps = self.committed = self.lost_steps = 0
        self.losses: list[float] = []
        self.saved = SavedState()
        self.shapes: list[ShapeRecord] = []
        self.since_s = 0.0
        self._activity: Activity = "pause"
        self._uncommitted_s = 0.0
        self._open: ShapeRecord | None = None

    @property
    def uncommitted(self) -> int:
        """Finished steps that are not committed."""
        return self.steps - self.committed

    @property
    def shape(self) -> ShapeRecord:
        """The present shape."""
        assert self._open is not None
        return self._open

    def path_of(self, steps: int) -> Path:
        """File of a checkpoint after so many steps."""
        return self._folder / f"step-{steps}.pt"

    def open_shape(self, now_s: float, moment: str, change: Reshape) -> None:
        """Begin a pause for another shape."""
        nodes, rate = change.shape.nodes, change.shape.rate
        attempt = len(self.shapes) + 1
        self._open = ShapeRecord(self.job, attempt, now_s, moment, nodes, rate)
        self._activity, self.since_s = "pause", now_s

    def switch(self, activity: Activity, now_s: float) -> None:
        """Count the time of what it did until now, and do something else."""
        span_s, shape = now_s - self.since_s, self.shape
        if self._activity == "pause":
            shape.pause_s += span_s
        elif self._activity == "steps":
            shape.steps_s += span_s
            self._uncommitted_s += span_s
        else:
            shape.write_s += span_s
        self._activity, self.since_s = activity, now_s

    def resume(self, origin: Origin, sent_bytes: int) -> None:
        """Go on from a state, which is another one than the committed one after a disaster."""
        shape, steps = self.shape, origin.steps
        shape.from_storage = origin.storage is not None
        shape.copied_bytes = float(sent_bytes)
        shape.samples += (steps - self.committed) * self._batch
        undone = max(0, self.committed - steps)
        shape.lost_samples += undone * self._batch
        self.lost_steps += undone
        self.steps = self.committed = steps
        self._uncommitted_s = 0.0
        del self.losses[steps:]

    def finish_step(self, loss: float) -> None:
        """Count a step."""
        self.steps += 1
        self.losses.append(loss)

    def commit(self, now_s: float) -> None:
        """Commit all finished steps."""
        self.switch(self._activity, now_s)
        self.shape.samples += self.uncommitted * self._batch
        self.committed = self.steps
        self._uncommitted_s = 0.0

    def keep(self, saved: SavedState) -> None:
        """Replace the last checkpoint."""
        before, self.saved = self.saved.path, saved
        if before is not None and before != saved.path:
            before.unlink(missing_ok=True)

    def lose(self, now_s: float) -> int:
        """End the present shape with what was not committed; returns how many steps that were."""
        steps, shape = self.uncommitted, self.shape
        self.close_shape(now_s)
        shape.lost_s += self._uncommitted_s
        shape.lost_samples += steps * self._batch
        self.lost_steps += steps
        self._uncommitted_s = 0.0
        self.steps = self.committed
        del self.losses[self.steps :]
        return steps

    def close_shape(self, now_s: float) -> None:
        """End the present shape, if there is one."""
        if self._open is not None:
            self.switch("pause", now_s)
            self._open.until_s = now_s
            self.shapes.append(self._open)
            self._open = None

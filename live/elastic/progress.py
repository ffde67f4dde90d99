"""What an elastic training has done: the ledger of its steps, its losses and its shapes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from wattkeeper.live.elastic.groups import Origin, SavedState
from wattkeeper.live.elastic.records import ShapeRecord
from wattkeeper.policies.points.replan import Reshape
from wattkeeper.sim.elastic.ledger import Fate, StepLedger

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
        ledger: Its steps; those that are committed outlive a loss as long as a worker has their
            state.
        losses: Mean loss of each finished step; NaN where the nodes that knew it were lost.
        saved: The last checkpoint in storage.
        shapes: Its shapes that ended.
        since_s: Since when it does what it does, s.
    """

    def __init__(self, job: str, wanted: int, batch: int, folder: Path, final_path: Path) -> None:
        self._batch, self._folder = batch, folder
        self.job, self.final_path = job, final_path
        self.ledger = StepLedger(wanted)
        self.losses: list[float] = []
        self.saved = SavedState()
        self.shapes: list[ShapeRecord] = []
        self.since_s = 0.0
        self._activity: Activity = "pause"
        self._open: ShapeRecord | None = None

    @property
    def shape(self) -> ShapeRecord:
        """The present shape; what it spent is in the ledger until it ends."""
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
        spent, span_s = self.ledger.spent, now_s - self.since_s
        if self._activity == "pause":
            spent.pause_s += span_s
        elif self._activity == "steps":
            spent.steps_s += span_s
            self.ledger.steps_s += span_s
        else:
            spent.writes.append((self.since_s, now_s))
        self._activity, self.since_s = activity, now_s

    def resume(self, origin: Origin, sent_bytes: int) -> None:
        """Go on from a state, which is another one than the committed one after a disaster."""
        self.shape.from_storage = origin.storage is not None
        self.shape.copied_bytes = float(sent_bytes)
        self.ledger.go_on_from(origin.steps)
        del self.losses[origin.steps :]
        self.losses += [math.nan] * (origin.steps - len(self.losses))

    def finish_step(self, loss: float) -> None:
        """Count a step."""
        self.ledger.finish()
        self.losses.append(loss)

    def commit(self, now_s: float) -> None:
        """Commit all finished steps."""
        self.switch(self._activity, now_s)
        self.ledger.commit()

    def keep(self, saved: SavedState) -> None:
        """Replace the last checkpoint."""
        before, self.saved = self.saved.path, saved
        if before is not None and before != saved.path:
            before.unlink(missing_ok=True)

    def close_shape(self, now_s: float, fate: Fate = "open") -> None:
        """End the present shape, if there is one."""
        if self._open is None:
            return
        self.switch("pause", now_s)
        shape, self._open = self._open, None
        spent = self.ledger.close_shape(fate)
        shape.until_s, shape.pause_s, shape.steps_s = now_s, spent.pause_s, spent.steps_s
        shape.write_s, shape.lost_s = spent.write_s, spent.lost_s
        shape.samples = spent.committed * self._batch
        shape.lost_samples = spent.lost_steps * self._batch
        self.shapes.append(shape)
        del self.losses[self.ledger.steps :]

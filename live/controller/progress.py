"""The progress of the attempts of a live run."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from wattkeeper.live.controller.attempt import LiveAttempt
from wattkeeper.live.controller.process_table import ProcessTable
from wattkeeper.live.wire.messages import AttemptResult, Cause

State = Literal["starts", "trains", "waits"]


class AttemptProgress(NamedTuple):
    """An attempt, and how far it is.

    Attributes:
        job_id: Its job.
        attempt: Its number.
        state: What it does, or why it ended; `waits`: it was preempted.
        gpu_type: Type of its GPUs.
        gpus: Its GPUs, as `node:gpu` with `,` between; empty while it has none.
        batch_size: Global batch size, samples.
        power_limit_w: Of each GPU, W; None: it is not chosen yet.
        epoch: Epochs done.
        max_epochs: It is given up after so many.
        metric: The last one reported; None if none was.
        time_s: Seconds of training.
        energy_j: Energy of that; None where nothing measures it.
        message: The last message of a failed script.
    """

    job_id: str
    attempt: int
    state: State | Cause
    gpu_type: str
    gpus: str
    batch_size: int
    power_limit_w: float | None
    epoch: int
    max_epochs: int
    metric: float | None
    time_s: float
    energy_j: float | None
    message: str = ""

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.state not in get_args(State)


Watch = Callable[[AttemptProgress], None]


class ProgressReporter:
    """Calls `watch` with the progress of each attempt, once the log of the run was processed."""

    def __init__(self, watch: Watch, processes: ProcessTable) -> None:
        self._watch, self._processes = watch, processes

    def __call__(
        self, run: LiveAttempt, state: State | Cause, ended: AttemptResult | None = None
    ) -> None:
        """Report what an attempt does, or how it ended."""
        if not self._processes.env.is_replayed:
            return
        attempt, last = run.attempt, run.last
        limit_w = None if ended is None else ended.power_limit_w
        if limit_w is None and run.training.force_limits:
            limit_w = run.power_limit_w
        progress = AttemptProgress(
            job_id=attempt.job.job_id,
            attempt=attempt.number,
            state=state,
            gpu_type=attempt.gpu_type,
            gpus=self._processes.describe_gpus(run.process.run_id),
            batch_size=run.decision.batch_size,
            power_limit_w=limit_w,
            epoch=last.epoch,
            max_epochs=run.training.options.max_epochs,
            metric=last.metric,
            time_s=last.time_s,
            energy_j=last.energy_j,
            message="" if ended is None else ended.message,
        )
        self._watch(progress)

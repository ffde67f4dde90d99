"""Jobs, what they ask for, and where they are placed."""

from __future__ import annotations

import math
from typing import Any, Final

from mypy_extensions import mypyc_attr

from wattkeeper.policies.immutable import make_immutable

Demand = tuple[int, int, str | None]
"""Number of GPUs, thousandths of each GPU, and the allowed GPU types (None: any)."""

Key = tuple[float | str | None, ...]
"""Demand, workload and any reserved power as a flat tuple; all jobs of one key fit in the cluster,
or none does."""

WHOLE: Final = 1000
"""Thousandths of a whole GPU."""

Slot = tuple[int, int, int]
"""Node, number of GPUs, and index of the shared GPU (`NEW`: GPUs that are not shared yet)."""

Placement = tuple[Slot, ...]
"""The slots of a job: one slot a node for whole GPUs, one slot a GPU for fractions of GPUs."""

NEW: Final = -1
"""Index that stands for GPUs of which no fraction is allocated."""

JOB_ATTRIBUTES = (
    "job_id",
    "group_id",
    "recurrence",
    "workload",
    "gpus",
    "submit_time_s",
    "duration_s",
    "time_scale",
    "number",
    "gpu_milli",
    "gpu_type",
    "user",
    "estimate_s",
    "model",
    "recorded_start_s",
    "reserved_w",
    "deadline_s",
    "queue",
)
"""The attributes that a job is constructed from; the others are derived."""


@mypyc_attr(acyclic=True)  # it refers to texts and numbers alone
class Job:
    """One submitted training run; immutable, also for policies.

    A plain class instead of a tuple: every decision reads some of its attributes, and compiled code
    reads those of a class several times faster.

    Attributes:
        job_id: Unique within a run.
        group_id: Shared by the recurrences of one recurring job; else the job's own id.
        recurrence: Number of the recurrence within its group, from 1, in order of submission.
        workload: Name of what is trained; None if unknown.
        gpus: Number of GPUs, allocated all at once (gang scheduling).
        submit_time_s: Time of submission, s.
        duration_s: Recorded run time, s; NaN if unknown.
        time_scale: Run time over the mean run time of the workload; 1 as profiled.
        number: Position among the jobs of the run as they are written; breaks ties.
        gpu_milli: Thousandths of each GPU that are allocated.
        gpu_type: Allowed GPU types, separated by `|`; None if any.
        user: The submitting user; None if unknown.
        estimate_s: The user's estimate of the run time, s; NaN if unknown.
        model: Name of the trained model, which identifies its graph in the zoo; None if the job
            does not use the zoo.
        recorded_start_s: When it started in the log that it comes from, s; NaN if unknown.
        reserved_w: Power of all its GPUs that counts under a power cap until a limit is chosen, W;
            0: the most that its workload, or a job without one, may draw.
        deadline_s: When it should have ended, s; NaN if it has no deadline.
        queue: Partition or virtual cluster that it was submitted to; None if unknown, or if the
            policy does not say that it reads it (`names_queues`).
        gpus_held: Allocated GPUs, fractions included.
    """

    __slots__ = (*JOB_ATTRIBUTES, "gpus_held")

    def __init__(
        self,
        job_id: str,
        group_id: str,
        recurrence: int,
        workload: str | None,
        gpus: int,
        submit_time_s: float,
        duration_s: float = math.nan,
        time_scale: float = 1.0,
        number: int = 0,
        gpu_milli: int = WHOLE,
        gpu_type: str | None = None,
        user: str | None = None,
        estimate_s: float = math.nan,
        model: str | None = None,
        recorded_start_s: float = math.nan,
        reserved_w: float = 0.0,
        deadline_s: float = math.nan,
        queue: str | None = None,
    ) -> None:
        self.job_id: Final = job_id
        self.group_id: Final = group_id
        self.recurrence: Final = recurrence
        self.workload: Final = workload
        self.gpus: Final = gpus
        self.submit_time_s: Final = submit_time_s
        self.duration_s: Final = duration_s
        self.time_scale: Final = time_scale
        self.number: Final = number
        self.gpu_milli: Final = gpu_milli
        self.gpu_type: Final = gpu_type
        self.user: Final = user
        self.estimate_s: Final = estimate_s
        self.model: Final = model
        self.recorded_start_s: Final = recorded_start_s
        self.reserved_w: Final = reserved_w
        self.deadline_s: Final = deadline_s
        self.queue: Final = queue
        self.gpus_held: Final = gpus * gpu_milli / WHOLE

    @property
    def demand(self) -> Demand:
        """Resources that the job requests; jobs of equal demand fit in the same places."""
        return self.gpus, self.gpu_milli, self.gpu_type

    @property
    def key(self) -> Key:
        """Demand, workload and reserved power: decides where the job fits, also under a cap."""
        demand: Key = (self.gpus, self.gpu_milli, self.gpu_type, self.workload)
        return (*demand, self.reserved_w) if self.reserved_w else demand

    def replace(self, **changes: Any) -> Job:
        """Return a copy with some attributes changed."""
        return Job(**{name: getattr(self, name) for name in JOB_ATTRIBUTES} | changes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Job, tuple(getattr(self, name) for name in JOB_ATTRIBUTES)

    def __repr__(self) -> str:
        shown = JOB_ATTRIBUTES if self.queue is not None else JOB_ATTRIBUTES[:-1]
        return f"Job({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


make_immutable(Job)

"""What a run leaves behind while it runs: rows of plain values, turned into columns at its end."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

UNITS_PER_WATT = 2**60
"""Power is counted in whole parts of a watt, so that sums of changes are exact."""


def whole_units(power_w: float) -> int:
    """Power in whole parts of a watt."""
    return round(power_w * UNITS_PER_WATT)


class AttemptRow(NamedTuple):
    """A row of `jobs.parquet`, less variant and seed; see `wattkeeper.sim.results.JOBS`."""

    job_id: str
    group_id: str
    recurrence: int
    attempt: int
    workload: str
    gpu_type: str
    gpus: int
    node_ids: list[int]
    time_scale: float
    submit_time_s: float
    start_time_s: float
    finish_time_s: float
    batch_size: int
    power_limit_w: float
    epochs: int
    energy_j: float
    time_s: float
    cost: float
    reached_target: bool
    early_stopped: bool
    profiled: bool
    parent_model: str | None
    preemptions: int


class DecisionRow(NamedTuple):
    """A row of `decisions.parquet`, less variant and seed."""

    time_s: float
    point: str
    policy: str
    job_id: str
    attempt: int
    saw: str
    chose: str


class Recorder:
    """Collects attempts, decisions and changes of power.

    Attributes:
        attempts: By time of finishing.
        decisions: The journal, in order.
        power: Time (s) and change (in `UNITS_PER_WATT`) of the power that jobs draw, by time.
    """

    def __init__(self) -> None:
        self.attempts: list[AttemptRow] = []
        self.decisions: list[DecisionRow] = []
        self.power: list[tuple[float, int]] = []

    def decided(
        self,
        now_s: float,
        point: str,
        policy: str,
        job_id: str,
        attempt: int,
        saw: tuple[object, ...],
        chose: str,
    ) -> None:
        """Write a decision to the journal.

        Args:
            now_s: When it was made.
            point: Decision point.
            policy: The policy's name.
            job_id: The job it is about.
            attempt: The attempt it is about.
            saw: What the policy was shown, beside time and job; kept as a digest.
            chose: What it chose.
        """
        shown = f"{now_s!r} {job_id} {attempt} {saw!r}".encode()
        digest = blake2b(shown, digest_size=8).hexdigest()
        self.decisions.append(DecisionRow(now_s, point, policy, job_id, attempt, digest, chose))

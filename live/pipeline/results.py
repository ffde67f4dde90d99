"""What a pipeline's session leaves behind: its profile, its decisions and its iterations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.live.pipeline.clock_sweep import write_profile
from wattkeeper.live.pipeline.plan_chooser import PlanDecision
from wattkeeper.live.pipeline.reports import IterationRecord
from wattkeeper.policies.pipeline.profile import ClockPlan, PipelineProfile
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.traces.files.atomic import replace_file

PROFILE: Final = "profile.csv"
RESULTS: Final = "pipeline.json"
MADE_UP: Final = (
    "emulated: CPU processes have no GPU clocks; time and energy are those of a table that is made "
    "up, at the clocks that were in force on synthetic devices"
)
MEASURED: Final = "measured on the devices of the ranks"


class PipelineResults(NamedTuple):
    """Writes the results of a session.

    Attributes:
        folder: For its files; None: nothing is written.
        job: Name of the training.
        schedule: The order of its instructions.
        tune: The policy.
        gpu_type: Type of its devices.
        is_emulated: Whether time and energy are made up.
    """

    folder: Path | None
    job: str
    schedule: PipelineSchedule
    tune: PolicyConfig
    gpu_type: str
    is_emulated: bool

    def write_profile(self, profile: PipelineProfile) -> None:
        """Write the points that were measured, as CSV."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_profile(profile, self.folder / PROFILE)

    def write(
        self,
        blocking_w: float | None,
        decisions: Sequence[PlanDecision],
        plans: Sequence[ClockPlan],
        records: Sequence[IterationRecord],
        ended: str,
    ) -> None:
        """Write all results; `ended` says how the session did."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        values = {
            "job": self.job,
            "origin": MADE_UP if self.is_emulated else MEASURED,
            "ended": ended,
            "schedule": self.schedule._asdict(),
            "gpu_type": self.gpu_type,
            "tune": self.tune.model_dump(mode="json"),
            "blocking_power_w": blocking_w,
            "decisions": [decision._asdict() for decision in decisions],
            "plans": plans,
            "iterations": [record._asdict() for record in records],
        }
        with replace_file(self.folder / RESULTS) as new:
            new.write_text(json.dumps(values) + "\n", encoding="utf-8")

"""The arguments of a pipeline's session, and what is made from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from wattkeeper.live.pipeline.clock_sweep import ClockSweep
from wattkeeper.live.pipeline.leader import PipelineLeader, PipelineResults
from wattkeeper.live.pipeline.plan_chooser import PlanChooser
from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.policies.pipeline.graph import schedule_graph
from wattkeeper.policies.pipeline.profile import PipelineProfile
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.registry import find_config
from wattkeeper.traces.files.names import explain_label
from wattkeeper.traces.pipelines import read_pipeline

if TYPE_CHECKING:
    from wattkeeper.live.pipeline.emulation import EmulatedPipeline
    from wattkeeper.policies.registry import PolicyConfig

MADE_UP: Final = (
    "emulated: CPU processes have no GPU clocks; time and energy are those of a table that is made "
    "up, at the clocks that were in force on synthetic devices"
)
MEASURED: Final = "measured on the devices of the ranks"

SCHEDULES: Final = ("1f1b", "gpipe", "interleaved")

MOST_CLOCKS: Final = 12
"""So many of the clocks that devices have are measured, from the highest to half of it, unless they
are given."""


class RankFacts(NamedTuple):
    """What a rank tells the leader of its devices.

    Attributes:
        gpus: Their number.
        gpu_type: Their type.
        clocks_mhz: The clocks that may be set, MHz, ascending.
    """

    gpus: int
    gpu_type: str
    clocks_mhz: tuple[int, ...]


class PipelineArguments(NamedTuple):
    """The arguments of `wattkeeper.live.pipeline.session.PipelineSession`, and the world's size."""

    job: str
    microbatches: int
    iterations: int
    tune: str | PolicyConfig
    schedule: Literal["1f1b", "gpipe", "interleaved"]
    chunks: int
    replicas: int
    clocks_mhz: Sequence[int] | None
    profile: str | Path | None
    profile_iterations: int
    blocking_power_w: float | None
    output: str | Path | None
    world: int

    def check(self) -> None:
        """Check the arguments, all at once.

        Raises:
            InputError: With a problem for each wrong one.
        """
        name = explain_label(self.job, "job")
        power_w = self.blocking_power_w
        wrong = [
            (not self.job.strip(), "found no name; give the job one, job='gpt'"),
            (bool(self.job.strip() and name), name),
            (
                self.schedule not in SCHEDULES,
                f"found schedule={self.schedule!r}; allowed: {', '.join(SCHEDULES)}",
            ),
            (self.microbatches < 1, f"found microbatches={self.microbatches}; must be at least 1"),
            (self.iterations < 1, f"found iterations={self.iterations}; must be at least 1"),
            (
                self.replicas < 1 or self.world % max(1, self.replicas) != 0,
                f"found replicas={self.replicas} for {self.world} processes, which must be a "
                "multiple of them",
            ),
            (
                self.profile_iterations < 1,
                f"found profile_iterations={self.profile_iterations}; must be at least 1",
            ),
            (
                power_w is not None and not 0 <= power_w < math.inf,
                f"found blocking_power_w={power_w}; must be 0 or more",
            ),
            (
                self.profile is not None and power_w is None,
                "found a profile without blocking_power_w, which it does not hold; give both",
            ),
            (
                self.profile is not None and self.clocks_mhz is not None,
                "found a profile and clocks_mhz, which would not be measured; give one of them",
            ),
            (
                self.clocks_mhz is not None and min(self.clocks_mhz, default=0) < 1,
                f"found clocks_mhz={self.clocks_mhz}; at least one is needed, and all above 0",
            ),
        ]
        if problems := [Problem(message) for applies, message in wrong if applies]:
            raise InputError(problems)

    def make_schedule(self) -> PipelineSchedule:
        """The schedule of one replica.

        Raises:
            InputError: If there is none for these numbers.
        """
        ranks = self.world // self.replicas
        schedule = PipelineSchedule(self.schedule, ranks, self.microbatches, self.chunks)
        schedule_graph(schedule)
        return schedule

    def make_leader(
        self,
        facts: Sequence[RankFacts],
        now_s: Callable[[], float],
        replica: int,
        emulated: EmulatedPipeline | None,
    ) -> PipelineLeader:
        """What decides for the ranks of a replica.

        Raises:
            InputError: If the devices differ, the profile is not of this pipeline, or the training
                ends before all is measured.
            PolicyError: If a session cannot carry out the policy's decisions.
        """
        types = sorted({fact.gpu_type for fact in facts})
        if len(types) > 1:
            found = ", ".join(types)
            raise InputError(f"the ranks have devices of the types {found}; one is needed")
        gpus = tuple(fact.gpus for fact in facts)
        config = find_config("tune", self.tune)
        chooser = PlanChooser(self.job, types[0], self.iterations, config, now_s)
        schedule = self.make_schedule()
        folder = None if self.output is None else Path(self.output)
        if folder is not None and self.replicas > 1:
            folder /= f"replica-{replica}"
        described = {
            "job": self.job,
            "origin": MEASURED if emulated is None else MADE_UP,
            "ended": "",
            "schedule": schedule._asdict(),
            "gpu_type": types[0],
            "tune": config.model_dump(mode="json"),
        }
        results = PipelineResults(folder, described)
        profile, sweep = self.read_profile(schedule, gpus), None
        if profile is None:
            sweep = self.make_sweep(facts)
        return PipelineLeader(schedule, chooser, sweep, profile, self.blocking_power_w, results)

    def make_sweep(self, facts: Sequence[RankFacts]) -> ClockSweep:
        """What measures the instructions.

        Raises:
            InputError: If a clock is not supported, or no iteration is left after measuring.
        """
        clocks_mhz = self._clocks(facts)
        gpus = tuple(fact.gpus for fact in facts)
        sweep = ClockSweep(clocks_mhz, self.profile_iterations, gpus)
        if sweep.iterations_left >= self.iterations:
            raise InputError(
                f"found iterations={self.iterations}; measuring clocks ({len(clocks_mhz)}) "
                f"takes {sweep.iterations_left} of them, and none would be left for the policy"
            )
        return sweep

    def read_profile(
        self, schedule: PipelineSchedule, gpus: tuple[int, ...]
    ) -> PipelineProfile | None:
        """The points that were measured before, if any; `gpus`: of each rank.

        Raises:
            InputError: If they are not of this pipeline.
        """
        if self.profile is None or self.blocking_power_w is None:
            return None
        stages = read_pipeline(Path(self.profile)).stages
        if len(stages) != schedule.stages:
            raise InputError(
                f"{self.profile} has {len(stages)} stages; this pipeline has {schedule.stages}"
            )
        return PipelineProfile(
            tuple(
                stage._replace(gpus=gpus[number % schedule.ranks])
                for number, stage in enumerate(stages)
            ),
            self.blocking_power_w,
        )

    def _clocks(self, facts: Sequence[RankFacts]) -> list[int]:
        """The clocks to measure, MHz, among those that all devices support."""
        common = sorted(set.intersection(*(set(fact.clocks_mhz) for fact in facts)))
        if self.clocks_mhz is not None:
            for clock_mhz in self.clocks_mhz:
                if clock_mhz not in common:
                    allowed = ", ".join(map(str, common)) or "none"
                    raise InputError(f"found the clock {clock_mhz} MHz; the devices have {allowed}")
            return list(self.clocks_mhz)
        common = [clock_mhz for clock_mhz in common if 2 * clock_mhz >= common[-1]]
        steps = min(MOST_CLOCKS, len(common))
        last = len(common) - 1
        return [common[round(last * step / max(1, steps - 1))] for step in range(steps)]

"""Emulated stages: CPU processes whose instructions take the time and energy of a table.

CPU processes have no GPU clocks. On synthetic devices, the instructions of a pipeline are computed
for real, but their time and energy are those of a table at the clock in force, on a clock of the
emulation that each rank counts on its own. An instruction begins when those that it waits for have
ended by that clock, whose times the ranks pass on. So results do not depend on the load of the
host; nothing in them is a measurement of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.live.devices.device import PowerRange
from wattkeeper.live.devices.synthetic import PREFIX, SyntheticDevice
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.pipeline.exchange import StageExchange
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.pipeline.graph import PipelineGraph
from wattkeeper.policies.pipeline.profile import ClockPoint, PipelineProfile

AHEAD_S: Final = 1e9
"""Other processes that open an emulated device take its time to be so far in the past, s, so that
they change it at the time that its rank last counted."""


LOG: Final = ".log"
"""Suffix of the log beside a rank's first device: by instruction (its number in
`wattkeeper.policies.pipeline.graph.PipelineGraph`), the clock that the device was at."""


class SlowSpell(NamedTuple):
    """Iterations in which a stage takes longer.

    Attributes:
        stage: The stage.
        first: The first of these iterations, from 1; those of the profiling do not count.
        last: The last one.
        factor: Its time over that of the table.
    """

    stage: int
    first: int
    last: int
    factor: float


class EmulatedPipeline(NamedTuple):
    """What instructions take on emulated devices; all of it is made up.

    Attributes:
        profile: Time and energy by stage, instruction and clock.
        slow: When stages take longer.
    """

    profile: PipelineProfile
    slow: tuple[SlowSpell, ...] = ()

    @property
    def clocks_mhz(self) -> tuple[int, ...]:
        """The clocks that the table has for any instruction, ascending, MHz."""
        profile = self.profile
        operations = range(2 * len(profile.stages))
        return tuple(
            sorted({point.frequency_mhz for each in operations for point in profile.points(each)})
        )

    def factor(self, stage: int, iteration: int) -> float:
        """How much longer a stage takes in an iteration."""
        spells = [
            s.factor for s in self.slow if s.stage == stage and s.first <= iteration <= s.last
        ]
        return max(spells, default=1.0)


class EmulatedClock(WallClock):
    """A clock that stands still unless it is put forward.

    Attributes:
        time_s: What it shows, s.
    """

    time_s = 0.0

    def now_s(self) -> float:
        """What it shows, s."""
        return self.time_s


def make_devices(folder: Path, gpu_type: str, gpus: int, clocks_mhz: Sequence[int]) -> str:
    """Make the emulated devices of a rank for one session, in a folder.

    Returns:
        The value of `wattkeeper.live.devices.VARIABLE` for its process.
    """
    paths = [folder / f"gpu-{number}" for number in range(gpus)]
    past = WallClock(begun_s=time.monotonic() + AHEAD_S)
    for path in paths:
        limits = PowerRange(1e6, 1e6, 1e6)  # nothing is limited
        SyntheticDevice.create(path, gpu_type, limits, 0.0, past, clocks_mhz)
    return PREFIX + ",".join(str(path.absolute()) for path in paths)


class EmulatedMeter:
    """Time and energy of a rank on emulated devices; see `wattkeeper.live.pipeline.meters`.

    Args:
        devices: Of this rank.
        emulated: What instructions take.
        exchange: The ranks.
        graph: All instructions.
    """

    def __init__(
        self,
        devices: Sequence[SyntheticDevice],
        emulated: EmulatedPipeline,
        exchange: StageExchange,
        graph: PipelineGraph,
    ) -> None:
        if len(emulated.profile.stages) != graph.stages:
            raise InputError(
                f"the emulated pipeline has {len(emulated.profile.stages)} stages and the schedule "
                f"{graph.stages}"
            )
        for device in devices:
            if device.state().since_s > 0:
                raise InputError(f"{device.uuid} was used before; make new devices (make_devices)")
        self._devices, self._emulated = devices, emulated
        self._exchange, self._graph = exchange, graph
        self._clock = EmulatedClock()
        for device in devices:
            device.wall = self._clock
        own = set(graph.positions[exchange.rank])
        awaited = {o for n, before in enumerate(graph.before) if n not in own for o in before}
        self._awaited = own & awaited
        self._own = own
        self._iteration = self._round = 0
        self._point = ClockPoint(0, 0.0, 0.0)
        self._draw(emulated.profile.blocking_w)
        path = devices[0].path.with_suffix(LOG)
        self._log = path.open("w", encoding="ascii", buffering=1)
        self._log.write("iteration,instruction,clock_mhz,begun_s,ended_s\n")

    def now_s(self) -> float:
        """Time of this rank, s."""
        return self._clock.time_s

    def energy_j(self) -> float:
        """Energy of its devices so far, J."""
        return sum(device.energy_j(self._clock.time_s) for device in self._devices)

    def begin_iteration(self, number: int) -> None:
        """Begin an iteration; 0 in the profiling."""
        self._round += 1
        for index in self._awaited:
            self._exchange.delete(f"ended/{self._round - 1}/{index}")
        self._iteration = number

    def begin(self, index: int) -> None:
        """Begin an instruction, by its number in the graph, at the clock that is in force."""
        for other in self._graph.before[index]:
            if other not in self._own:
                self.meet(self._exchange.read(f"ended/{self._round}/{other}", float))
        operation = self._graph.operations[index]
        self._point = self._find_point(operation)
        power_w = self._point.energy_j / self._point.time_s / len(self._devices)
        self._draw(power_w)

    def end(self, index: int) -> None:
        """End it."""
        factor = self._emulated.factor(self._graph.operations[index] // 2, self._iteration)
        begun_s = self._clock.time_s
        self._clock.time_s += factor * self._point.time_s
        self._draw(self._emulated.profile.blocking_w)
        instruction = (self._round, index, self._point.frequency_mhz, begun_s, self._clock.time_s)
        print(*instruction, sep=",", file=self._log)
        if index in self._awaited:
            self._exchange.publish(f"ended/{self._round}/{index}", self._clock.time_s)

    def meet(self, time_s: float) -> None:
        """Wait until a time that another rank states, s."""
        self._clock.time_s = max(self._clock.time_s, time_s)

    def close(self) -> None:
        """End the log."""
        self._log.close()

    def _draw(self, power_w: float) -> None:
        for device in self._devices:
            device.draw({1e6: power_w}, self._clock.time_s)

    def _find_point(self, operation: int) -> ClockPoint:
        """The point of an operation at the clock in force; without one, the highest."""
        points = self._emulated.profile.points(operation)
        clock_mhz = self._devices[0].state().clock_mhz
        if not clock_mhz:
            return max(points)
        for point in points:
            if point.frequency_mhz == clock_mhz:
                return point
        clocks = ", ".join(str(point.frequency_mhz) for point in sorted(points))
        raise InputError(
            f"the emulated device {self._devices[0].uuid} is at {clock_mhz} MHz; "
            f"its table has {clocks} MHz"
        )

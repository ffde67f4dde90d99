"""A synthetic GPU, which draws the power that it is told to draw.

Its state is a file, so that several processes share one device: a training (or its rehearsal), its
meter, the guard of its limit, and `wattkeeper doctor`. Energy is exact: power is constant between
two changes, on the clock of the run.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from wattkeeper.live.devices.device import PowerRange, check_clock
from wattkeeper.live.host.wall_clock import STILL, WallClock
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.policies.errors import DeviceLost, InputError, NotSupported
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.private import make_private_folder
from wattkeeper.traces.files.user_dirs import state_folder

PREFIX: Final = "synthetic:"
SIZE: Final = 1 << 14
"""Bytes of the file: always the same, so that a state is written in one piece."""


class SyntheticState(NamedTuple):
    """What the file holds.

    Attributes:
        gpu_type: As in `Device`.
        limits: As in `Device`.
        idle_w: What it draws when nothing runs on it, W.
        speed: Of the clock.
        begun_s: Of the clock.
        limit_w: In force, W.
        busy: By power limit, ascending, what it draws, W; empty while nothing runs on it.
        energy_j: Until `since_s`, J.
        since_s: When limit, clock or draw changed last, s.
        clocks_mhz: As in `Device`.
        clock_mhz: What its clock is locked to, MHz; 0: it is not.
        busy_clocks: By clock, ascending, what it draws at most while its clock is locked, W.
    """

    gpu_type: str
    limits: PowerRange
    idle_w: float
    speed: float
    begun_s: float
    limit_w: float
    busy: tuple[tuple[float, float], ...] = ()
    energy_j: float = 0.0
    since_s: float = 0.0
    clocks_mhz: tuple[int, ...] = ()
    clock_mhz: int = 0
    busy_clocks: tuple[tuple[int, float], ...] = ()

    @property
    def power_w(self) -> float:
        """What it draws under its limit, or with its locked clock if that is less."""
        by_clock = [
            power_w for clock_mhz, power_w in self.busy_clocks if clock_mhz == self.clock_mhz
        ]
        return min([self._limited_w, *by_clock])

    @property
    def _limited_w(self) -> float:
        """What it draws: between two limits that `busy` names, on the straight line."""
        if not self.busy:
            return self.idle_w
        below = [point for point in self.busy if point[0] <= self.limit_w]
        above = [point for point in self.busy if point[0] > self.limit_w]
        if not below or not above:
            return (below or above)[-1 if below else 0][1]
        (low, least), (high, most) = below[-1], above[0]
        return least + (most - least) * (self.limit_w - low) / (high - low)

    def at(self, now_s: float) -> Self:
        """The state with its energy up to a time (s); a time that is over changes nothing."""
        now_s = max(now_s, self.since_s)
        energy_j = self.energy_j + self.power_w * (now_s - self.since_s)
        return self._replace(energy_j=energy_j, since_s=now_s)


class SyntheticDevice:
    """A device in a file; see `wattkeeper.live.devices.device.Device`.

    `create` makes its file.

    Attributes:
        wall: The clock that it lives on, which its maker gave it.

    Raises:
        DeviceLost: If the file is not there.
        InputError: If it is no such file.
    """

    has_counter = True
    read_every_s: float | None = None

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.uuid = f"{PREFIX}{self.path}"
        state = self.state()
        self.gpu_type = state.gpu_type
        self.limits: PowerRange | None = state.limits
        self.clocks_mhz = state.clocks_mhz
        still = STILL in os.environ
        self.wall = run_clock() if still else WallClock(state.speed, state.begun_s)

    @classmethod
    def create(
        cls,
        path: Path,
        gpu_type: str,
        limits: PowerRange,
        idle_w: float,
        wall: WallClock,
        clocks_mhz: Sequence[int] = (),
    ) -> SyntheticDevice:
        """Make an idle device at its default limit; a file that is there is overwritten.

        `gpu_type` is what profiles call it, `limits` what it may be limited to, `idle_w` what it
        draws when nothing runs on it, W, `wall` the clock that it lives on, and `clocks_mhz` what
        its cores may be locked to.
        """
        begun = (wall.speed, wall.begun_s)
        state = SyntheticState(
            gpu_type,
            limits,
            idle_w,
            *begun,
            limits.default_w,
            since_s=wall.now_s(),
            clocks_mhz=tuple(sorted(clocks_mhz)),
        )
        make_private_folder(path.parent)
        with replace_file(path, private=True) as fresh:
            fresh.write_bytes(_bytes(state))
        return cls(path)

    def state(self) -> SyntheticState:
        """What the file holds now."""
        with self._locked(fcntl.LOCK_SH) as file:
            return self._read(file)

    def energy_j(self, at_s: float | None = None) -> float:
        """Energy since it was made, J, until now or until a time of its clock (s)."""
        return self.state().at(self.wall.now_s() if at_s is None else at_s).energy_j

    def power_w(self) -> float:
        """What it draws now, W."""
        return self.state().power_w

    def utilisation(self) -> float:
        """1 while something runs on it, else 0."""
        return float(bool(self.state().busy))

    def limit_w(self) -> float:
        """The power limit in force, W."""
        return self.state().limit_w

    def set_limit_w(self, limit_w: float) -> None:
        """Put a power limit (W) in force."""
        if self.limits is not None:
            self.limits.check(limit_w, self.uuid)
        self._change(lambda state: state._replace(limit_w=float(limit_w)), None)

    def lock_clock_mhz(self, clock_mhz: int) -> None:
        """Lock its clock, MHz."""
        check_clock(clock_mhz, self.clocks_mhz, self.uuid)
        self._change(lambda state: state._replace(clock_mhz=clock_mhz), None)

    def unlock_clock(self) -> None:
        """Unlock its clock."""
        if not self.clocks_mhz:
            raise NotSupported(f"{self.uuid}: its clock cannot be locked")
        self._change(lambda state: state._replace(clock_mhz=0), None)

    def draw(
        self,
        power_w: Mapping[float, float],
        at_s: float | None = None,
        by_clock_w: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        """Let something run on it.

        Args:
            power_w: By power limit (W), what it draws, W.
            at_s: Since when, s of its clock; None: now. A moment that lies before the last change
                of limit, clock or draw counts as that change's.
            by_clock_w: By clock (MHz), what it draws at most while that is locked, W.
        """
        busy = tuple(sorted((float(limit), float(power)) for limit, power in power_w.items()))
        clocks = tuple(sorted((clock, float(power)) for clock, power in by_clock_w.items()))
        self._change(lambda state: state._replace(busy=busy, busy_clocks=clocks), at_s)

    def rest(self, at_s: float | None = None) -> None:
        """Let nothing run on it any more, since a time of its clock (s), or now."""
        self.draw({}, at_s)

    def _change(
        self, change: Callable[[SyntheticState], SyntheticState], at_s: float | None
    ) -> None:
        with self._locked(fcntl.LOCK_EX) as file:
            now_s = self.wall.now_s() if at_s is None else at_s
            os.pwrite(file, _bytes(change(self._read(file).at(now_s))), 0)

    def _read(self, file: int) -> SyntheticState:
        try:
            values: dict[str, Any] = json.loads(os.pread(file, SIZE, 0).partition(b"\n")[0])
            values["limits"] = PowerRange(*values["limits"])
            values["clocks_mhz"] = tuple(values.get("clocks_mhz", ()))
            for name in ("busy", "busy_clocks"):
                values[name] = tuple((key, power) for key, power in values.get(name, ()))
            return SyntheticState(**values)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InputError(f"{self.path} is no synthetic device") from None

    @contextmanager
    def _locked(self, kind: int) -> Iterator[int]:
        try:
            file = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            raise DeviceLost(f"the synthetic device {self.path} is not there") from None
        try:  # not by `traces.files.locks`: it locks the content itself, and readers share it
            fcntl.flock(file, kind)
            yield file
        finally:
            os.close(file)


def open_by_type(gpu_type: str, wall: WallClock) -> SyntheticDevice:
    """The device of a synthetic GPU type of this user; made, and busy from then on, if not there.

    It draws the power of a busy GPU of its type at its limit.

    Raises:
        InputError: If there is no such type.
    """
    from wattkeeper.traces.generate.synthetic_specs import DEFAULT_GPUS

    types = {spec.name: spec for spec in DEFAULT_GPUS}
    if gpu_type not in types:
        raise InputError(
            f"no synthetic GPU type {gpu_type!r}{did_you_mean(gpu_type, types)}; there is "
            f"{', '.join(sorted(types))}, or name the file of a synthetic device, with a / in it"
        )
    spec = types[gpu_type]
    path = state_folder() / "synthetic" / gpu_type
    if path.exists():
        device = SyntheticDevice(path)
        same = (device.wall.speed, device.wall.begun_s) == (wall.speed, wall.begun_s)
        if same and device.state().since_s <= wall.now_s():  # else the host was started anew
            return device
    limits = PowerRange(spec.min_limit_w, spec.max_limit_w, spec.max_limit_w)
    device = SyntheticDevice.create(path, gpu_type, limits, spec.idle_power_w, wall)
    device.draw({limit: min(limit, spec.peak_power_w) for limit in spec.limits_w})
    return device


def _bytes(state: SyntheticState) -> bytes:
    line = json.dumps(state._asdict()).encode() + b"\n"
    if len(line) > SIZE:
        raise InputError(
            f"what a synthetic device draws is given at {len(state.busy)} limits, too "
            "many for its file; some hundreds fit"
        )
    return line.ljust(SIZE)

"""A training script that emulates a training: it takes the time and power of a profile.

`wattkeeper run SCENARIO --live` starts it for every workload without a command, so that a
scenario can be tried with all its processes, without a GPU. Its devices are synthetic.
"""

import json
import math
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence

from typing_extensions import override

from wattkeeper.live.controller.rehearsal import REHEARSAL
from wattkeeper.live.devices import find_devices
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.session.checkpoint import Checkpointable
from wattkeeper.live.session.session import Session
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.policies.errors import InputError, WattkeeperError

EARLY_S = 1e-6


class EmulatedProgress(Checkpointable):
    """The progress of an epoch, saved when the training is stopped.

    Attributes:
        epoch: Number of the epoch, from 1.
        part: Share of it that is done; 0 while limits are profiled, which is repeated.
    """

    epoch = 0
    part = 0.0

    def begin(self, epoch: int) -> None:
        """Begin an epoch, or continue one that was not reported."""
        if epoch != self.epoch:
            self.epoch, self.part = epoch, 0.0

    @override
    def state_dict(self) -> dict[str, float]:
        return {"epoch": self.epoch, "part": self.part}

    @override
    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.epoch, self.part = int(state["epoch"]), state["part"]


def main() -> None:
    """Emulate the attempt that the environment names."""
    try:
        emulate()
    except WattkeeperError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def emulate() -> None:
    """Emulate the training that `REHEARSAL` describes.

    Raises:
        InputError: If it is not set, or the devices are not synthetic.
    """
    if REHEARSAL not in os.environ:
        raise InputError(f"{REHEARSAL} is not set: `wattkeeper run --live` starts rehearsals")
    plan = json.loads(os.environ[REHEARSAL])
    points = {int(size): curve for size, curve in plan["points"].items()}
    devices = [device for device in find_devices() if isinstance(device, SyntheticDevice)]
    if not devices:
        raise InputError("a rehearsal needs synthetic devices (WATTKEEPER_DEVICE)")
    with Session("rehearsal", batch_sizes=[1], default_batch_size=1, max_epochs=1) as session:
        training = EmulatedTraining(session, devices, points, plan["setup_s"])
        session.keep(progress=training.progress)
        training.draw(session.batch_size)
        for epoch in session.epochs(steps=training.steps, probe=training.probe):
            training.train_epoch(epoch.number)
            session.report(epoch.number / plan["epochs"])
        training.rest()


Points = Mapping[int, Sequence[tuple[float, float, float]]]
"""By batch size: power limit (W), time of an epoch (s) and power (W)."""


class EmulatedTraining:
    """A training that sleeps, and devices that draw what its profile says.

    Attributes:
        progress: Its progress within an epoch.
        steps: Steps of an epoch: two a power limit where these share it, those of the profile where
            slices of some steps are measured, else one.
    """

    def __init__(
        self, session: Session, devices: Sequence[SyntheticDevice], points: Points, setup_s: float
    ) -> None:
        self.progress = EmulatedProgress()
        self._session, self._devices, self._points = session, devices, points
        self._setup_s, self._stepped = setup_s, False
        self._wall = run_clock()
        self._due_s = self._wall.now_s()
        assignment = session.assignment
        self._profiles = bool(assignment.profile_w)
        self.steps = 2 * len(assignment.profile_w) or 1
        if assignment.slice is not None:
            self.steps = max(1, round(assignment.samples_per_epoch / session.batch_size))

    def draw(self, batch_size: int) -> None:
        """Let the devices draw the power of a batch size."""
        count = len(self._devices)
        for device in self._devices:
            device.draw({limit_w: w / count for limit_w, _, w in self._points[batch_size]})

    def rest(self) -> None:
        """Let the devices draw nothing any more."""
        for device in self._devices:
            device.rest()

    def _epoch_s(self, batch_size: int) -> float:
        """Time of an epoch at the limit in force, s."""
        limit_w = self._devices[0].limit_w()
        return next(time_s for at_w, time_s, _ in self._points[batch_size] if at_w == limit_w)

    def train_epoch(self, epoch: int) -> None:
        """Train what is left of an epoch; steps that are not measured take place at once."""
        session, steps = self._session, self.steps
        self.progress.begin(epoch)
        done = self.progress.part * steps
        while done < steps:
            read_after = session.steps_to_reading
            end = steps if read_after is None else min(steps, math.floor(done) + read_after)
            self._train_to(done / steps, end / steps)
            if read_after is None or not self._profiles:
                self.progress.part = end / steps
            for _ in range(1 if read_after is None else end - math.floor(done)):
                session.step()
            done = end
            self._stepped = True

    def _train_to(self, part: float, end: float) -> None:
        """Train from a share of the epoch to another one, or until the training shall stop."""
        session, left_s = self._session, math.inf
        while left_s > EARLY_S:
            epoch_s = self._epoch_s(session.batch_size)
            self._due_s += epoch_s * (end - part)
            goes_on = session.sleep_until(self._due_s)
            left_s = self._due_s - self._wall.now_s()
            if left_s > EARLY_S:
                part, self._due_s = end - left_s / epoch_s, self._wall.now_s()
                if not goes_on:
                    self._stop_at(part)

    def _stop_at(self, part: float) -> None:
        """Stop at the end of a step, as the controller asked."""
        if self._session.steps_to_reading is not None:
            part = 0.0 if self._profiles else math.floor(part * self.steps) / self.steps
        self.progress.part = part
        if not self._stepped:  # else the signal would interrupt it
            self._session.step()
        _ask_to_stop()
        self._session.step()

    def probe(self, batch_size: int) -> Iterator[None]:
        """Train at another batch size, for the slices that are asked for."""
        session = self._session
        self.draw(batch_size)
        try:
            self._sleep(self._setup_s)
            steps = session.assignment.samples_per_epoch / batch_size
            while True:
                count = session.steps_to_reading or 1
                self._sleep(count * self._epoch_s(batch_size) / steps)
                for _ in range(count):
                    yield
        finally:
            self.rest()

    def _sleep(self, time_s: float) -> None:
        """Sleep for a while, s; a training that shall stop says so to its session."""
        self._due_s = max(self._due_s, self._wall.now_s()) + time_s
        if not self._session.sleep_until(self._due_s):
            _ask_to_stop()


def _ask_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()

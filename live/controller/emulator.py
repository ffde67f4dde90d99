"""A training script that emulates a training: it takes the time and power of a profile.

`wattkeeper run SCENARIO --live` starts it for every workload without a command, so that a
scenario can be tried with all its processes, without a GPU. Its devices are synthetic.
"""

import json
import math
import os
import signal
import sys
from collections.abc import Mapping

from wattkeeper.live.controller.workloads import REHEARSAL
from wattkeeper.live.devices import find_devices
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.session.session import Session
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.policies.errors import InputError, WattkeeperError

EARLY_S = 1e-6


class EmulatedProgress:
    """The progress of an epoch, saved when the training is stopped.

    Attributes:
        part: Share of the epoch that is done; 0 while limits are profiled, which is repeated.
    """

    part = 0.0

    def state_dict(self) -> dict[str, float]:
        """See `wattkeeper.live.session.checkpoint.Checkpointable`."""
        return {"part": self.part}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """See `wattkeeper.live.session.checkpoint.Checkpointable`."""
        self.part = state["part"]


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
    points = {limit: (time_s, power_w) for limit, time_s, power_w in plan["points"]}
    devices = [device for device in find_devices() if isinstance(device, SyntheticDevice)]
    if not devices:
        raise InputError("a rehearsal needs synthetic devices (WATTKEEPER_DEVICE)")
    wall = run_clock()
    with Session("rehearsal", batch_sizes=[1], default_batch_size=1, max_epochs=1) as session:
        limits = session.assignment.profile_w
        steps = 2 * len(limits) or 1
        progress = EmulatedProgress()
        session.keep(progress=progress)
        for device in devices:
            device.draw({limit: w / len(devices) for limit, (_, w) in points.items()})
        due_s = wall.now_s()
        for epoch in session.epochs(steps=steps):
            parts = steps if epoch.number == 1 and limits else 1
            for _ in range(parts):
                part, left_s = progress.part, math.inf
                while left_s > EARLY_S:
                    step_s = points[devices[0].limit_w()][0] / parts
                    due_s += step_s * (1 - part)
                    goes_on = session.sleep_until(due_s)
                    left_s = due_s - wall.now_s()
                    if left_s > EARLY_S:
                        part, due_s = 1 - left_s / step_s, wall.now_s()
                        if not goes_on:
                            progress.part = part if parts == 1 else 0.0
                            _stop(session)
                progress.part = 0.0
                session.step()
            session.report(epoch.number / plan["epochs"])
        for device in devices:
            device.rest()


def _stop(session: Session) -> None:
    """Stop at the end of a step, as the controller asked."""
    session.step()
    os.kill(os.getpid(), signal.SIGTERM)
    session.step()


if __name__ == "__main__":
    main()

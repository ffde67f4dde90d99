"""A training script that does not train: it takes the time and the power that a profile says.

`wattkeeper run SCENARIO --live` starts it for every workload that has no command, so that a
scenario can be tried with all its processes, without a GPU. Its devices are synthetic; it uses a
session as any script does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping

from wattkeeper.live.controller.workloads import REHEARSAL
from wattkeeper.live.devices import found
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.session.session import Session
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.policies.errors import InputError, WattkeeperError

EARLY_S = 1e-6


class Progress:
    """How far it came, which it keeps when it is told to stop.

    Attributes:
        part: The share of the epoch that is done; 0 while limits are profiled, which begins anew.
    """

    part = 0.0

    def state_dict(self) -> dict[str, float]:
        """See `wattkeeper.live.session.checkpoint.Checkpointable`."""
        return {"part": self.part}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """See `wattkeeper.live.session.checkpoint.Checkpointable`."""
        self.part = state["part"]


def main() -> None:
    """Rehearse the attempt that the environment names."""
    try:
        rehearse()
    except WattkeeperError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def rehearse() -> None:
    """Pretend to train as `REHEARSAL` says.

    Raises:
        InputError: If it does not say how, or the devices are not synthetic.
    """
    if REHEARSAL not in os.environ:
        raise InputError(f"{REHEARSAL} is not set: `wattkeeper run --live` starts rehearsals")
    plan = json.loads(os.environ[REHEARSAL])
    points = {limit: (time_s, power_w) for limit, time_s, power_w in plan["points"]}
    devices = [device for device in found() if isinstance(device, SyntheticDevice)]
    if not devices:
        raise InputError("a rehearsal needs synthetic devices (WATTKEEPER_DEVICE)")
    wall = run_clock()
    needed = plan["epochs"]
    with Session("rehearsal", batch_sizes=[1], default_batch_size=1, max_epochs=1) as session:
        limits = session.assignment.profile_w
        steps = 2 * len(limits) or 1
        place = Progress()
        session.keep(place=place)
        for device in devices:
            device.draw({limit: w / len(devices) for limit, (_, w) in points.items()})
        due_s = wall.now_s()
        for epoch in session.epochs(steps=steps):
            parts = steps if epoch.number == 1 and limits else 1
            for _ in range(parts):
                step_s = points[devices[0].limit_w()][0] / parts
                due_s += step_s * (1 - place.part)
                wall.sleep_until(due_s)
                left_s = due_s - wall.now_s()
                if left_s > EARLY_S:
                    place.part = 1 - left_s / step_s if parts == 1 else 0.0
                    _stop(session)
                place.part = 0.0
                session.step()
            session.report(epoch.number / needed)
        for device in devices:
            device.rest()


def _stop(session: Session) -> None:
    """Stop at the end of a step, since the controller said so."""
    session.step()
    os.kill(os.getpid(), signal.SIGTERM)
    session.step()


if __name__ == "__main__":
    main()

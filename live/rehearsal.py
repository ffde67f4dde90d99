"""A training script that does not train: it takes the time and the power that a profile says.

`wattkeeper run SCENARIO --live` starts it for every workload that has no command, so that a
scenario can be tried live, with all its processes, without a GPU.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from wattkeeper.live.control.link import LinkGuide, guide_from_environment, wall_from_environment
from wattkeeper.live.control.trainings import REHEARSAL
from wattkeeper.live.guide import Cause, Ended, Epoch, Orders
from wattkeeper.live.wall import Wall
from wattkeeper.policies.errors import WattkeeperError
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.protocols import Measurement


def main() -> None:
    """Rehearse the attempt that the environment names."""
    try:
        guide = guide_from_environment()
        wall = wall_from_environment(guide)
        plan = json.loads(os.environ[REHEARSAL])
        orders = guide.begin()
        over = threading.Event()
        threading.Thread(target=_live, args=(guide, orders.lease_s, over), daemon=True).start()
        guide.ended(_rehearse(guide, wall, orders, plan))
        over.set()
    except WattkeeperError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def _live(guide: LinkGuide, lease_s: float, over: threading.Event) -> None:
    while not over.wait(lease_s / 3):
        try:
            guide.alive()
        except WattkeeperError:
            os._exit(3)


def _rehearse(guide: LinkGuide, wall: Wall, orders: Orders, plan: dict[str, float]) -> Ended:
    points = {limit: (time_s, power_w) for limit, time_s, power_w in plan["points"]}  # type: ignore[attr-defined]
    needed = plan["epochs"]
    objective = Objective(orders.eta)
    time_s, energy_j = orders.time_done_s, orders.energy_done_j or 0.0
    begun_s, epoch, limit_w = wall.now_s() - time_s, orders.epochs_done, orders.power_limit_w
    done_s, done_j = time_s, energy_j
    cause: Cause = "epochs"
    while epoch < orders.max_epochs:
        cost = objective.cost(energy_j, time_s, orders.max_power_w)
        mean = None
        if limit_w is not None:
            mean = objective.cost(points[limit_w][0] * points[limit_w][1], points[limit_w][0],
                                  orders.max_power_w)  # fmt: skip
        if mean is not None and cost + mean > orders.cost_bound * (1 + 1e-12):
            cause = "bound"
            break
        found = []
        if limit_w is None:
            share = 1 / len(orders.profile_w)
            for limit in orders.profile_w:
                epoch_s, power_w = points[limit]
                done_s, done_j = done_s + share * epoch_s, done_j + share * epoch_s * power_w
                found.append(Measurement(limit, epoch_s, power_w))
        else:
            epoch_s, power_w = points[limit_w]
            done_s, done_j = done_s + epoch_s, done_j + epoch_s * power_w
        wall.sleep_until(begun_s + done_s)
        if wall.now_s() < begun_s + done_s - 1e-6:
            return Ended("stopped", epoch, time_s, energy_j, limit_w, how="counter")
        epoch, time_s, energy_j = epoch + 1, done_s, done_j
        if found:
            limit_w = guide.profiled(tuple(found))
        goes_on = guide.epoch(Epoch(epoch, epoch / needed, time_s, energy_j))
        if epoch >= needed:
            cause = "reached"
            break
        if not goes_on:
            cause = "stopped"
            break
    return Ended(cause, epoch, time_s, energy_j, limit_w, how="counter")


if __name__ == "__main__":
    main()

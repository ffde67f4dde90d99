"""What measuring costs a training: with and without it, in turns, on this host.

``python benchmarks/monitor.py [PAIRS]`` trains a small network on the GPU, if torch sees one, else
on one core: as it is; with the meter read before and after, on devices that count their energy;
with a thread that reads their power, as if they did not; and as an epoch of a `Session`, which also
renews its lease and stores what the epoch came to. Without a device it measures a synthetic one,
whose readings take longer than those of a driver. It must cost at most 1 % of the time. Other work
on the host disturbs pairs of short trainings the least: hence many of them, and their median.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import torch

from wattkeeper.live import Session, devices
from wattkeeper.live.devices.device import Device, PowerRange
from wattkeeper.live.devices.energy_meter import EnergyMeter
from wattkeeper.live.devices.nvml import SAMPLE_S
from wattkeeper.live.devices.synthetic import SyntheticDevice
from wattkeeper.live.host.wall_clock import WallClock

PAIRS, FEWEST = 200, 5
SECONDS = 0.25
"""Of one training without the meter."""
EPOCH_S = 1.0
"""Of one without a session; what comes once in an epoch weighs less in those of real trainings."""
READINGS = 1000


class Uncounted:
    """A device whose counter nobody knows of."""

    has_counter = False
    read_every_s: float | None = SAMPLE_S

    def __init__(self, device: Device) -> None:
        self.uuid, self.gpu_type, self.limits = device.uuid, device.gpu_type, device.limits
        self.energy_j, self.power_w, self.utilisation = (
            device.energy_j,
            device.power_w,
            device.utilisation,
        )
        self.limit_w, self.set_limit_w = device.limit_w, device.set_limit_w
        self.clocks_mhz = device.clocks_mhz
        self.lock_clock_mhz, self.unlock_clock = device.lock_clock_mhz, device.unlock_clock


class Training:
    """Steps of a small convolutional network."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.cuda = torch.cuda.is_available()
        where = torch.device("cuda" if self.cuda else "cpu")
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 3),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 32, 3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.LazyLinear(10),
        ).to(where)
        self.images = torch.randn(32, 3, 16, 16, device=where)
        self.labels = torch.randint(0, 10, (32,), device=where)
        self.step()
        self.optimiser = torch.optim.SGD(self.model.parameters(), 0.01)

    def step(self) -> None:
        loss = torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        loss.backward()

    def run(self, steps: Iterable[object]) -> None:
        for _ in steps:
            self.optimiser.zero_grad()
            self.step()
            self.optimiser.step()
            if self.cuda:
                torch.cuda.synchronize()


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the host and of the CPU."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - cpu


def compare(bare: Callable[[], object], monitored: Callable[[], object], pairs: int) -> None:
    """Print what is added to host and CPU time: the median, and where it lies by 95 %."""
    ratios: list[tuple[float, float]] = []
    for pair in range(pairs):
        if pair % 2:
            with_it, without = timed(monitored), timed(bare)
        else:
            without, with_it = timed(bare), timed(monitored)
        ratios.append((with_it[0] / without[0], with_it[1] / without[1]))
    around = round(0.98 * math.sqrt(pairs))  # ranks, by the normal limit of the binomial
    for name, of_pair in zip(("host time", "CPU time"), zip(*ratios, strict=True), strict=True):
        added = sorted(100 * (ratio - 1) for ratio in of_pair)
        low, high = (added[pairs // 2 + at] for at in (-around, around))
        middle = statistics.median(added)
        print(f"  {name:10} {middle:+.2f} % ({low:+.2f} to {high:+.2f})")


def metered(training: Training, steps: int, there: list[Device]) -> None:
    """Train with the meter alone."""
    meter = EnergyMeter(there, WallClock())
    training.run(range(steps))
    meter.read()
    meter.close()


def reading(there: list[Device]) -> None:
    """Print what reading the meter takes."""
    meter = EnergyMeter(there, WallClock())
    began = time.perf_counter()
    for _ in range(READINGS):
        meter.read()
    reading_s = (time.perf_counter() - began) / READINGS
    meter.close()
    often = 2 / SECONDS + (0 if there[0].has_counter else 1 / SAMPLE_S)
    print(f"  a reading  {reading_s * 1e6:.0f} us, {often * reading_s:.2%} of the time so often")


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    if pairs < FEWEST:
        sys.exit(f"found {pairs} pairs; an interval needs {FEWEST} at least")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WATTKEEPER_STATE"] = folder
        there = devices.find_devices()
        if not there:
            path = Path(folder) / "gpu"
            there = [
                SyntheticDevice.create(path, "synthetic", PowerRange(1, 400, 400), 60, WallClock())
            ]
            os.environ["WATTKEEPER_DEVICE"] = f"synthetic:{path}"
        training = Training()
        probe = 20
        step_s = timed(lambda: training.run(range(probe)))[0] / probe
        steps, in_epoch = (max(1, round(span_s / step_s)) for span_s in (SECONDS, EPOCH_S))
        print(f"devices    {', '.join(device.gpu_type for device in there)}")
        print(
            f"training   {'GPU' if training.cuda else 'one core'} of {os.cpu_count()}, "
            f"steps of {step_s * 1e3:.1f} ms, {pairs} pairs"
        )
        kinds: dict[str, list[Device]] = {"counted": list(there)}
        if isinstance(there[0], SyntheticDevice) or there[0].limits is not None:
            kinds["integrated"] = [Uncounted(device) for device in there]
        for kind, measured in kinds.items():
            print(f"{kind}, {steps} steps")
            bare = partial(training.run, range(steps))
            compare(bare, partial(metered, training, steps, measured), pairs)
            reading(measured)
        print(f"session, {in_epoch} steps an epoch")
        with Session(
            "monitor",
            batch_sizes=[1],
            default_batch_size=1,
            max_epochs=pairs + 1,
            power_control="off",
        ) as session:
            epochs = session.epochs(range(in_epoch))

            def epoch() -> None:
                training.run(next(epochs))
                session.report(0.0)

            compare(partial(training.run, range(in_epoch)), epoch, pairs)


if __name__ == "__main__":
    main()

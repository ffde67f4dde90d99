"""What the energy counter of a GPU shows: the tables of docs/devices.md.

``python benchmarks/energy_counter.py [SECONDS]`` reads counter and power of the first GPU as often
as it can, for 15 s under each of four loads: none, none in a process that has begun with CUDA,
matrix products without a pause, and products for 0.3 s in turn with 0.3 s of rest. It sets nothing.
Other work on the GPU disturbs it.

A short reading is the difference of the counter as it stands at two moments. It is compared with
that of the counter interpolated between its updates.
"""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from wattkeeper.live import devices
from wattkeeper.live.devices.device import Device

SECONDS = 15.0
PULSE_S = 0.3
SETTLE_S = 2.0
SPANS_S = (0.1, 0.2, 0.5, 1.0, 2.0)
DRAWS = 20_000
BFLOAT_SIZE, CPU_SIZE = 8192, 256


class Record(NamedTuple):
    """Readings under a load: when (s), the counter (J), and power (W)."""

    times_s: np.ndarray
    counted_j: np.ndarray
    powers_w: np.ndarray
    asked_s: list[float]
    """How long each reading of the counter took."""


class Load:
    """Matrix products in a thread, in turn with pauses; where `busy_s` is 0, CUDA only begins."""

    def __init__(self, busy_s: float, rest_s: float) -> None:
        self._busy_s, self._rest_s = busy_s, rest_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        cuda = torch.cuda.is_available()
        size = BFLOAT_SIZE if cuda else CPU_SIZE
        kind = torch.bfloat16 if cuda else torch.float32
        factor = torch.randn(size, size, dtype=kind, device="cuda" if cuda else "cpu")
        while self._busy_s and not self._over.is_set():
            end_s = time.monotonic() + self._busy_s
            while time.monotonic() < end_s and not self._over.is_set():
                factor @ factor
                if cuda:
                    torch.cuda.synchronize()
            self._over.wait(self._rest_s)


def watch(device: Device, seconds: float) -> Record:
    times_s, counted_j, powers_w, asked_s = [], [], [], []
    end_s = time.monotonic() + seconds
    while (before_s := time.monotonic()) < end_s:
        counted_j.append(device.energy_j())
        times_s.append(time.monotonic())
        asked_s.append(times_s[-1] - before_s)
        powers_w.append(device.power_w())
    return Record(np.array(times_s), np.array(counted_j), np.array(powers_w), asked_s)


def updates(values: np.ndarray) -> np.ndarray:
    """Where values differ from those before."""
    return np.flatnonzero(np.diff(values)) + 1


def compare_power(load: str, record: Record) -> str:
    at = updates(record.counted_j)[[0, -1]]
    inside = slice(at[0], at[1] + 1)
    span_s, counted_j = (float(np.diff(of[at])[0]) for of in (record.times_s, record.counted_j))
    integrated_j = float(np.trapezoid(record.powers_w[inside], record.times_s[inside]))
    return (
        f"| {load} | {span_s:.0f} s | {counted_j / span_s:.1f} W "
        f"| {100 * (integrated_j / counted_j - 1):+.2f} % |"
    )


def describe(values_s: Sequence[float]) -> str:
    low, high = np.percentile(values_s, (5, 95))
    return f"{statistics.median(values_s):.4f} s (90 % from {low:.4f} to {high:.4f} s)"


def short_readings(load: str, record: Record) -> str:
    """The root mean square of relative errors, and the largest, for readings at random moments."""
    at = updates(record.counted_j)
    edges_s, edges_j = record.times_s[at], record.counted_j[at]
    draw = random.Random(1)
    cells = []
    for span_s in SPANS_S:
        latest_s = edges_s[-1] - span_s
        begun_s = np.array([draw.uniform(edges_s[0], latest_s) for _ in range(DRAWS)])
        moments_s = np.stack((begun_s, begun_s + span_s))
        stands = edges_j[np.searchsorted(edges_s, moments_s, side="right") - 1]
        true_j = np.diff(np.interp(moments_s, edges_s, edges_j), axis=0)
        errors = np.diff(stands, axis=0) / true_j - 1
        mean, most = 100 * np.sqrt(np.mean(errors**2)), 100 * np.max(np.abs(errors))
        cells.append(f"{mean:.1f} % ({most:.0f} %)")
    return f"| {load} | {' | '.join(cells)} |"


def show_intervals(of: str, times_s: np.ndarray, values: np.ndarray) -> None:
    intervals_s = np.diff(times_s[updates(values)])
    if len(intervals_s):
        print(f"{of} is updated every {describe(intervals_s)}")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    device = next((found for found in devices.find_devices() if found.has_counter), None)
    if device is None:
        sys.exit(f"no device counts its energy; {devices.explain_absence()}")
    print(f"{device.gpu_type}, limit {device.limit_w():g} W\n")
    records = {"none": watch(device, seconds)}
    loads = {"CUDA begun": (0.0, 0.0), "constant": (1.0, 0.0), "on and off": (PULSE_S, PULSE_S)}
    for name, (busy_s, rest_s) in loads.items():
        with Load(busy_s, rest_s):
            time.sleep(SETTLE_S)
            records[name] = watch(device, seconds)
    for name, record in records.items():
        at = updates(record.counted_j)
        if len(at) < 2 or record.times_s[at[-1]] - record.times_s[at[0]] <= max(SPANS_S):
            sys.exit(f"{name}: the counter moved too seldom in {seconds:g} s: measure for longer")
    print("| load | time | counter | integrated power against it |\n|---|---|---|---|")
    for name, record in records.items():
        print(compare_power(name, record))
    print()
    busy = records["constant"]
    show_intervals("the counter", busy.times_s, busy.counted_j)
    show_intervals("power", busy.times_s, busy.powers_w)
    print(f"reading the counter takes {describe(busy.asked_s)}\n")
    print(f"| load | {' | '.join(f'{span_s:g} s' for span_s in SPANS_S)} |")
    print("|---" * (len(SPANS_S) + 1) + "|")
    for name in ("constant", "on and off"):
        print(short_readings(name, records[name]))


if __name__ == "__main__":
    main()

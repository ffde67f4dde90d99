"""Records three small trainings on the GPU at hand: ``python -m benchmarks.gpu_record FOLDER``.

A residual network on images, a transformer on sequences and a language model of bytes are trained
at four batch sizes, three times each, in under ten minutes. Power limit, clocks and modes are not
touched: all is at those in force. Each run trains for 2 s until it has settled, is then measured
for at least 5 s by the energy counter, and goes on until its target or its time is reached.

FOLDER/runs.jsonl has a line for each run; those that are there are not repeated. FOLDER/record.json
has the metadata, and for each training and batch size the means, their spread over the repeats, and
whether they are valid, with reasons. With ``--small`` all is so small that a CPU tries the script
(`WATTKEEPER_DEVICE=synthetic:SYN-400W` stands for the GPU); nothing of it is valid.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from benchmarks.gpu_record.trainings import Training, make_trainings
from wattkeeper.live import devices
from wattkeeper.live.devices.device import Device
from wattkeeper.live.devices.energy_meter import EnergyMeter
from wattkeeper.live.devices.nvml import NvmlGpu
from wattkeeper.live.wire.clock import run_clock

REPEATS: Final = 3
MOST_SPREAD: Final = 0.03
"""Largest coefficient of variation over repeats of what is valid."""

SLOWED: Final = {0x08: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal"}
"""Bits of NVML's reasons for lower clocks that are no limit of power."""


class Spans(NamedTuple):
    """Times of a run and of all runs, s."""

    settle_s: float
    window_s: float
    most_s: float
    budget_s: float


FULL: Final = Spans(2.0, 5.0, 12.0, 540.0)
SMALL: Final = Spans(0.05, 0.2, 0.5, 60.0)


class Recorder:
    """Runs trainings on a device, and writes what they took."""

    def __init__(self, folder: Path, device: Device, *, small: bool) -> None:
        self.device, self.small, self.spans = device, small, SMALL if small else FULL
        self.torch_device = "cuda" if torch.cuda.is_available() else "cpu"
        self.path, self.summary = folder / "runs.jsonl", folder / "record.json"
        folder.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text("utf-8").splitlines() if self.path.exists() else ()
        self.runs: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def run(self) -> None:
        """Run what is absent, in the order of repeats, while there is time."""
        began_s = time.monotonic()
        trainings = make_trainings(self.torch_device, small=self.small)
        done = {(run["training"], run["batch_size"], run["seed"]) for run in self.runs}
        for seed in range(REPEATS):
            for training in trainings:
                for size in training.batch_sizes:
                    if (training.name, size, seed) in done:
                        continue
                    if time.monotonic() - began_s > self.spans.budget_s - self.spans.most_s:
                        self.summarise(trainings)
                        sys.exit("the time is over; run it again for what is absent")
                    self.keep(self.measure(training, size, seed))
        self.summarise(trainings)

    def keep(self, run: dict[str, Any]) -> None:
        self.runs.append(run)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
        print(json.dumps({key: value for key, value in run.items() if key != "curve"}), flush=True)

    def measure(self, training: Training, batch_size: int, seed: int) -> dict[str, Any]:
        """Train until the window is measured, and the target or the end of the time reached."""
        head = {"training": training.name, "batch_size": batch_size, "seed": seed}
        torch.manual_seed(seed)
        try:
            return head | self._train(training, batch_size, seed)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return head | {"failed": "out of memory"}

    def _train(self, training: Training, batch_size: int, seed: int) -> dict[str, Any]:
        net = training.build().to(self.torch_device)
        net.train()
        steps = training.steps(net, batch_size, seed)
        limit_w = self.device.limit_w()
        epoch, trained, next_epoch, spent_s = len(training.train.labels), 0, 1, 0.0
        curve: list[float] = []
        window: dict[str, Any] = {}
        reached = None
        meter, metered, ended = None, 0, False
        while not ended:
            began_s = time.monotonic()
            for _ in range(8):  # kernels are queued: waiting at each step would leave the GPU idle
                count = next(steps)
                trained += count
                metered += count
            self.synchronize()
            spent_s += time.monotonic() - began_s
            if meter is None and spent_s >= self.spans.settle_s:
                meter, metered = EnergyMeter([self.device], run_clock()), 0
            if meter is not None and not window:
                reading = meter.read()
                if reading.time_s >= self.spans.window_s:
                    meter.close()
                    window = self.describe_window(reading.time_s, reading.energy_j, metered)
                    window["energy_from"] = reading.how
            if trained >= next_epoch * epoch and (meter is None or window):  # not in the window
                next_epoch = trained // epoch + 1
                curve.append(training.validate(net))
                if reached is None and training.reached(curve[-1]):
                    reached = round(trained / epoch, 2)
            ended = bool(window) and (reached is not None or spent_s >= self.spans.most_s)
        return window | {
            "limit_w": limit_w,
            "limit_after_w": self.device.limit_w(),
            "epoch_samples": epoch,
            "epochs": round(trained / epoch, 2),
            "epochs_to_target": reached,
            "curve": curve,
            "most_memory_bytes": self.most_memory_bytes(),
        }

    def describe_window(
        self, time_s: float, energy_j: float | None, samples: int
    ) -> dict[str, Any]:
        return {
            "window_s": time_s,
            "energy_j": energy_j,
            "samples": samples,
            "others": len(self.device.others()) if isinstance(self.device, NvmlGpu) else 0,
        } | self.ask_driver()

    def ask_driver(self) -> dict[str, Any]:
        """Clock, temperature, and why clocks are lower; nothing where no driver can be asked."""
        if not isinstance(self.device, NvmlGpu):
            return {}
        import pynvml

        handle = pynvml.nvmlDeviceGetHandleByUUID(self.device.uuid)
        reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return {
            "clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "slowed": [name for bit, name in SLOWED.items() if reasons & bit],
        }

    def synchronize(self) -> None:
        if self.torch_device != "cpu":
            torch.cuda.synchronize()

    def most_memory_bytes(self) -> int | None:
        if self.torch_device == "cpu":
            return None
        most = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return int(most)

    def summarise(self, trainings: Sequence[Training]) -> None:
        """Write means, spread and verdicts."""
        rows = [
            summarise_runs(
                training,
                size,
                [
                    run
                    for run in self.runs
                    if (run["training"], run["batch_size"]) == (training.name, size)
                ],
                self.spans,
            )
            for training in trainings
            for size in training.batch_sizes
        ]
        record = {"about": self.describe(), "measured": rows}
        self.summary.write_text(json.dumps(record, indent=1) + "\n", "utf-8")

    def describe(self) -> dict[str, Any]:
        """What was measured, with what, when."""
        about = {
            "date": datetime.now(UTC).date().isoformat(),
            "gpu": self.device.gpu_type,
            "limit_w": self.device.limit_w(),
            "energy": "of the GPU, at the limit and clocks in force, which were not touched",
            "torch": torch.__version__,
            "python": platform.python_version(),
            "repeats": REPEATS,
            "settle_s": self.spans.settle_s,
            "window_s": self.spans.window_s,
        }
        if isinstance(self.device, NvmlGpu):
            import pynvml

            about["driver"] = pynvml.nvmlSystemGetDriverVersion()
        return about


def summarise_runs(
    training: Training, batch_size: int, runs: Sequence[dict[str, Any]], spans: Spans
) -> dict[str, Any]:
    """Means and spread of the runs of a training at a batch size, and whether they are valid."""
    head = {
        "training": training.name,
        "batch_size": batch_size,
        "metric": training.metric,
        "target": training.target,
        "runs": len(runs),
    }
    measured = [run for run in runs if "failed" not in run]
    reasons = sorted({run["failed"] for run in runs if "failed" in run})
    reasons += [f"{len(measured)} runs of {REPEATS}"] * (len(measured) < REPEATS)
    if not measured:
        return head | {"valid": False, "reasons": reasons}
    rates = [run["samples"] / run["window_s"] for run in measured]
    powers_w = [(run["energy_j"] or 0.0) / run["window_s"] for run in measured]
    spread = {"samples_per_s": vary(rates), "power_w": vary(powers_w)}
    reasons += [
        f"{name} varies by {100 * share:.1f} %"
        for name, share in spread.items()
        if share > MOST_SPREAD
    ]
    how = sorted({run["energy_from"] for run in measured} - {"counter"})
    reasons += [f"energy is {', '.join(how)}"] * bool(how)
    reasons += ["windows below 5 s"] * (spans.window_s < FULL.window_s)
    reasons += ["other processes"] * any(run["others"] for run in measured)
    slowed = sorted({word for run in measured for word in run.get("slowed", ())})
    reasons += [f"slowed: {', '.join(slowed)}"] * bool(slowed)
    limits_w = {run[key] for run in measured for key in ("limit_w", "limit_after_w")}
    reasons += ["the power limit changed"] * (len(limits_w) > 1)
    power_w = statistics.fmean(powers_w)
    return head | {
        "samples_per_s": statistics.fmean(rates),
        "power_w": power_w,
        "below_limit_w": min(limits_w) - power_w,
        "spread": spread,
        "epoch_samples": measured[0]["epoch_samples"],
        "epochs_to_target": [run["epochs_to_target"] for run in measured],
        "valid": not reasons,
        "reasons": reasons,
    }


def vary(values: Sequence[float]) -> float:
    """Standard deviation over mean."""
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if len(values) > 1 and mean else 0.0


def main(arguments: Sequence[str]) -> None:
    """Record into the folder that is named."""
    words = [word for word in arguments if word != "--small"]
    if len(words) != 1:
        sys.exit(__doc__)
    found = devices.find_devices()
    if not found:
        sys.exit(devices.explain_absence())
    Recorder(Path(words[0]), found[0], small="--small" in arguments).run()


if __name__ == "__main__":
    main(sys.argv[1:])

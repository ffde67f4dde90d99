"""The coordinator of a session that is recorded: it reads a request and writes events."""

from __future__ import annotations

import json
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from wattkeeper.live.devices.device import common_range
from wattkeeper.live.host import process_identity
from wattkeeper.live.session import distributed
from wattkeeper.live.session.arguments import SessionArguments
from wattkeeper.live.session.instruments import Instruments
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.live.wire.messages import Assignment, AttemptResult, EpochReport, ProfileReport

REQUEST: Final = "request.json"
EVENTS: Final = "events.jsonl"


class RecordingRequest(NamedTuple):
    """What is recorded of a training.

    Attributes:
        batch_size: Global batch size; None: the script's default one.
        power_limit_w: Of each GPU, W; None: the highest. Of no effect where none may be set.
        recurrence: Tells repetitions apart.
        epochs: It ends after so many, whatever it reached; None: at its target, or the script's
            largest number.
        stop_after: It is told to stop after so many epochs; None: it is not.
        epochs_done: How many it did before it was told to stop.
        time_done_s: Seconds of training that these took.
        energy_done_j: Energy of that.
        checkpoint: Where it saves its state when it is told to stop.
        lease_s: It is hung if it is silent for longer than this and its own lease, s.
        parent: Identity of the recorder; the training stops if it has ended.
    """

    batch_size: int | None
    power_limit_w: float | None
    recurrence: int
    epochs: int | None = None
    stop_after: int | None = None
    epochs_done: int = 0
    time_done_s: float = 0.0
    energy_done_j: float | None = None
    checkpoint: str | None = None
    lease_s: float = 0.0
    parent: str = ""


PROFILED: Final = (
    "job",
    "batch_sizes",
    "default_batch_size",
    "max_epochs",
    "target",
    "higher_is_better",
    "samples_per_epoch",
)
"""The arguments that concern a profile."""


class RecordingCoordinator:
    """See `wattkeeper.live.wire.messages.Coordinator` for its methods.

    The folder holds the request, and gets the events.
    """

    def __init__(self, folder: Path, arguments: SessionArguments, instruments: Instruments) -> None:
        self._arguments, self._instruments = arguments, instruments
        self._events = folder / EVENTS
        self._wall = run_clock()
        self._request = RecordingRequest(
            **json.loads((folder / REQUEST).read_text(encoding="utf-8"))
        )
        self._report_s = 0.0

    def begin(self) -> Assignment:
        """The assignment that the recorder requests."""
        arguments, request = self._arguments, self._request
        batch_size = request.batch_size or arguments.default_batch_size
        assignment = Assignment(
            job_id=f"{arguments.job}/{request.recurrence}",
            recurrence=request.recurrence,
            attempt=1,
            batch_size=batch_size,
            default_batch_size=arguments.default_batch_size,
            max_epochs=min(arguments.max_epochs, request.epochs or arguments.max_epochs),
            power_limit_w=self._limit_w(),
            eta=0.0,
            max_power_w=1.0,
            target=arguments.target if request.epochs is None else None,
            higher_is_better=arguments.higher_is_better,
            checkpoint=request.checkpoint,
            epochs_done=request.epochs_done,
            time_done_s=request.time_done_s,
            energy_done_j=request.energy_done_j,
            lease_s=max(arguments.lease_s, request.lease_s),
        )
        self._write("begun", assignment._asdict() | self._describe_run())
        return assignment

    def report_profile(self, report: ProfileReport) -> float:
        """Not called: no limits are profiled within a recorded training."""
        raise AssertionError(report)

    def report_epoch(self, report: EpochReport) -> bool:
        """Append it to the events."""
        at_s = self._wall.now_s()
        self._write("epoch", report._asdict() | {"report_s": self._report_s})
        self._report_s = self._wall.now_s() - at_s
        return report.epoch != self._request.stop_after and self.renew_lease()

    def renew_lease(self) -> bool:
        """Touch the events; whether the recorder still runs."""
        with suppress(OSError):
            os.utime(self._events)
        return not process_identity.is_dead(self._request.parent)

    def end(self, outcome: AttemptResult) -> None:
        """Append it to the events."""
        self._write("ended", outcome._asdict() | {"report_s": self._report_s})

    def _limit_w(self) -> float | None:
        if not self._instruments.limiter.allowed:
            return None
        common = common_range(self._instruments.devices)
        assert common is not None  # some device takes limits
        limit_w = self._request.power_limit_w
        if limit_w is None:
            return common.highest_w
        common.check(limit_w)
        return limit_w

    def _describe_run(self) -> dict[str, Any]:
        """The arguments of the session, and the devices that it runs on."""
        arguments, instruments = self._arguments, self._instruments
        devices, limiter = instruments.devices, instruments.limiter
        torch = sys.modules.get("torch")
        return {
            "terms": {name: getattr(arguments, name) for name in PROFILED},
            "gpu_type": instruments.gpu_type,
            "gpus": len(devices) or distributed.world_size(),
            "limits_w": common_range(devices),
            "limit_w": instruments.power_limit_w,
            "allowed": limiter.allowed,
            "why": limiter.why,
            "how": instruments.meter.how,
            "versions": {
                "python": platform.python_version(),
                "torch": None if torch is None else str(torch.__version__),
                "cuda": None if torch is None else torch.version.cuda,
            },
        }

    def _write(self, event: str, content: dict[str, Any]) -> None:
        row = {"event": event, "at_s": self._wall.now_s()} | content
        with self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

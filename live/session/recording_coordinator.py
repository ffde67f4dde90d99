"""The coordinator of a session that is recorded: it reads a request and writes events."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wattkeeper.live.devices.device import common_range
from wattkeeper.live.host import process_identity
from wattkeeper.live.session import distributed
from wattkeeper.live.session.arguments import PowerControl, SessionArguments
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.live.wire.messages import Assignment, AttemptResult, EpochReport
from wattkeeper.policies.errors import NotSupported
from wattkeeper.policies.protocols import Measurement

if TYPE_CHECKING:
    from wattkeeper.live.devices.device import Device

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
        lease_s: It is taken for hung that is silent for longer than this and its own lease, s.
        parent: Process that wants to know; without it nobody does, so that the training stops.
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


class RecordingCoordinator:
    """See `wattkeeper.live.wire.messages.Coordinator` for its methods.

    Args:
        folder: Holds the request; the events are written there.
        terms: What the script says.
        devices: Those of this process.
        limiter: Whether power limits can be set.
        how: Where energy is from.
    """

    def __init__(
        self,
        folder: Path,
        terms: SessionArguments,
        devices: Sequence[Device],
        limiter: PowerControl,
        how: str,
    ) -> None:
        self._terms, self._devices, self._limiter, self._how = terms, devices, limiter, how
        self._events = folder / EVENTS
        self._wall = run_clock()
        self._wanted = RecordingRequest(
            **json.loads((folder / REQUEST).read_text(encoding="utf-8"))
        )
        self._report_s = 0.0

    def begin(self) -> Assignment:
        """Begin what is recorded."""
        terms, wanted = self._terms, self._wanted
        batch_size = wanted.batch_size or terms.default_batch_size
        assignment = Assignment(
            job_id=f"{terms.job}/{wanted.recurrence}",
            recurrence=wanted.recurrence,
            attempt=1,
            batch_size=batch_size,
            default_batch_size=terms.default_batch_size,
            max_epochs=min(terms.max_epochs, wanted.epochs or terms.max_epochs),
            power_limit_w=self._limit_w(),
            eta=0.0,
            max_power_w=1.0,
            target=terms.target if wanted.epochs is None else None,
            higher_is_better=terms.higher_is_better,
            checkpoint=wanted.checkpoint,
            epochs_done=wanted.epochs_done,
            time_done_s=wanted.time_done_s,
            energy_done_j=wanted.energy_done_j,
            lease_s=max(terms.lease_s, wanted.lease_s),
        )
        self._write("begun", assignment._asdict() | self._about())
        return assignment

    def report_profile(self, report: tuple[Measurement, ...]) -> float:
        """Nothing is profiled within a training that is recorded."""
        raise AssertionError(report)

    def report_epoch(self, report: EpochReport) -> bool:
        """Write it to the events."""
        at_s = self._wall.now_s()
        self._write("epoch", report._asdict() | {"report_s": self._report_s})
        self._report_s = self._wall.now_s() - at_s
        return report.epoch != self._wanted.stop_after and self.renew_lease()

    def renew_lease(self) -> bool:
        """Note a sign of life; whether the recorder still runs."""
        with suppress(OSError):
            os.utime(self._events)
        return not process_identity.is_dead(self._wanted.parent)

    def end(self, outcome: AttemptResult) -> None:
        """Write it to the events."""
        self._write("ended", outcome._asdict() | {"report_s": self._report_s})

    def _limit_w(self) -> float | None:
        if not self._limiter.allowed:
            return None
        common = common_range(self._devices)
        assert common is not None  # some device takes limits
        limit_w = self._wanted.power_limit_w
        if limit_w is None:
            return common.highest_w
        common.check(limit_w)
        return limit_w

    def _about(self) -> dict[str, Any]:
        """The arguments of the session, and the devices that it runs on."""
        terms = self._terms
        types = sorted({device.gpu_type for device in self._devices})
        torch = sys.modules.get("torch")
        return {
            "terms": dict(zip(terms._fields[:6], terms[:6], strict=True)),  # up to the direction
            "gpu_type": "+".join(types) or "cpu",
            "gpus": len(self._devices) or distributed.world_size(),
            "limits_w": common_range(self._devices),
            "limit_w": self._in_force(),
            "allowed": self._limiter.allowed,
            "why": self._limiter.why,
            "how": self._how,
            "versions": {
                "python": platform.python_version(),
                "torch": None if torch is None else str(torch.__version__),
                "cuda": None if torch is None else torch.version.cuda,
            },
        }

    def _in_force(self) -> float | None:
        try:
            return min((device.limit_w() for device in self._devices), default=None)
        except NotSupported:
            return None

    def _write(self, event: str, content: dict[str, Any]) -> None:
        row = {"event": event, "at_s": self._wall.now_s()} | content
        with self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

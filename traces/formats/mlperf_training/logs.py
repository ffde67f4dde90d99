"""Logs of runs: lines with ``:::MLLOG`` and an object of JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeGuard

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.readers.json_values import quote

MARK: Final = ":::MLLOG"
KEYS: Final = frozenset({"run_start", "run_stop", "eval_accuracy", "seed", "global_batch_size"})
MOST_BATCH: Final = 2**31 - 1
MOST_MS: Final = 10**14
"""About the year 5000."""
POSITIONS: Final = ("epoch_num", "samples_count", "step_num")
"""Metadata of an evaluation that say after how much training it was taken."""

_decoder: Final = json.JSONDecoder()


class Event(NamedTuple):
    """An event of a log.

    Attributes:
        key: What it is.
        time_ms: When, ms since 1970.
        value: As written.
        metadata: As written; empty if it is no object.
        line: Its line, from 1.
    """

    key: str
    time_ms: float
    value: object
    metadata: dict[str, Any]
    line: int


class LoggedRun(NamedTuple):
    """What the log of a run says.

    Attributes:
        start_ms: First run_start, ms since 1970.
        stop_ms: Last run_stop, ms since 1970.
        reached: Whether it reached its target.
        batch_size: Global batch size, samples.
        seed: As written; None: not logged.
        evaluations: Number of evaluations.
        curve: Evaluation (from 1), metric, value, and s since the start, in order of time.
        broken: Lines with the mark and no whole object that were skipped.
    """

    start_ms: float
    stop_ms: float
    reached: bool
    batch_size: int
    seed: str | None
    evaluations: int
    curve: tuple[tuple[int, str, float, float], ...]
    broken: int

    @property
    def time_s(self) -> float:
        """Time of the run, s."""
        return (self.stop_ms - self.start_ms) / 1000


class Log(NamedTuple):
    """The events of a file that matter, and the number of broken lines."""

    events: tuple[Event, ...]
    broken: int


def read_events(lines: Iterable[str], keys: frozenset[str], where: str) -> Log:
    """The events of some keys.

    Raises:
        TraceError: If a line that matters is broken; the message names file and line.
    """
    events: list[Event] = []
    broken = marked = 0
    for number, line in enumerate(lines, 1):
        for text in line.split(MARK)[1:]:
            marked += 1
            try:
                content, _ = _decoder.raw_decode(text.lstrip())
                key = content["key"]
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                if any(f'"{key}"' in text for key in keys):
                    fault = f"{MARK} is followed by no whole object with a key: {quote(text)}"
                    raise TraceError(fault, f"{where}, line {number}") from error
                broken += 1
                continue
            if isinstance(key, str) and key in keys:
                events.append(_event(content, number, where))
    if not marked:
        raise TraceError(f"has no line with {MARK}", where)
    return Log(tuple(events), broken)


def _event(content: dict[str, Any], number: int, where: str) -> Event:
    time_ms, metadata = content.get("time_ms"), content.get("metadata")
    if not is_number(time_ms) or not 0 <= time_ms <= MOST_MS:
        text = f"time_ms of {content['key']} is {quote(time_ms)}, must be ms since 1970"
        raise TraceError(text, f"{where}, line {number}")
    known = metadata if isinstance(metadata, dict) else {}
    return Event(content["key"], float(time_ms), content.get("value"), known, number)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value of JSON is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_run(lines: Iterable[str], where: str) -> LoggedRun:
    """What the log of a run says.

    Raises:
        TraceError: If its start, its end or its batch size is missing, or a line is wrong.
    """
    log = read_events(lines, KEYS, where)
    by_key: dict[str, list[Event]] = {key: [] for key in KEYS}
    for event in log.events:
        by_key[event.key].append(event)
    for key in ("run_start", "run_stop", "global_batch_size"):
        if not by_key[key]:
            raise TraceError(f"has no {key}; the log is not that of a whole run", where)
    start = min(by_key["run_start"], key=lambda event: event.time_ms)
    stop = max(by_key["run_stop"], key=lambda event: event.time_ms)
    if stop.time_ms <= start.time_ms:
        text = f"run_stop is not later than run_start (line {start.line})"
        raise TraceError(text, f"{where}, line {stop.line}")
    points = list(_points(by_key["eval_accuracy"], start.time_ms, where))
    seed = by_key["seed"][0].value if by_key["seed"] else None
    return LoggedRun(
        start_ms=start.time_ms,
        stop_ms=stop.time_ms,
        reached=stop.metadata.get("status") == "success",
        batch_size=_batch_size(by_key["global_batch_size"][0], where),
        seed=str(seed) if is_number(seed) or (isinstance(seed, str) and seed) else None,
        evaluations=max((number for number, *_ in points), default=0),
        curve=tuple(points),
        broken=log.broken,
    )


def _batch_size(event: Event, where: str) -> int:
    value = event.value
    if is_number(value) and float(value).is_integer() and 0 < value <= MOST_BATCH:
        return int(value)
    text = f"global_batch_size is {quote(value)}, must be a whole number > 0"
    raise TraceError(text, f"{where}, line {event.line}")


def _points(
    events: Iterable[Event], start_ms: float, where: str
) -> Iterator[tuple[int, str, float, float]]:
    """Values of the metrics, by number of the evaluation, each once if ranks repeat it."""
    numbers: dict[object, int] = {}
    seen: set[tuple[int, str]] = set()
    for event in sorted(events, key=lambda event: event.time_ms):
        values = event.value if isinstance(event.value, dict) else {_metric(event): event.value}
        for metric, value in values.items():
            if not is_number(value):
                text = f"eval_accuracy is {quote(value)}, must be a number"
                raise TraceError(text, f"{where}, line {event.line}")
            stated = (event.metadata[key] for key in POSITIONS if key in event.metadata)
            position = str(next(stated, event.time_ms))
            number = numbers.setdefault(position, len(numbers) + 1)
            if (number, metric) not in seen:
                seen.add((number, metric))
                yield number, metric, float(value), max(0.0, event.time_ms - start_ms) / 1000


def _metric(event: Event) -> str:
    stated = event.metadata.get("metric")
    return re.sub(r"\s+", " ", stated) if isinstance(stated, str) and stated else "eval_accuracy"

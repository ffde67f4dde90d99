"""A time window on the submissions of a log."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.policies.errors import InputError
from wattkeeper.traces.library.local_times import find_log_zone
from wattkeeper.traces.readers.base import ImportOptions, TimeKind
from wattkeeper.traces.readers.columns import parse_times
from wattkeeper.traces.times.zones import to_instants

COLUMNS = ("submit_time_s", "start_time_s", "duration_s", "gpus", "gpu_milli")


class SubmissionWindow(NamedTuple):
    """Submissions that are kept, in the seconds of the log.

    Attributes:
        since_s: The first; minus infinity: no limit.
        until_s: The first that is not kept any more; infinity: no limit.
        kinds: How the limits are written; empty: none is given.
    """

    since_s: float = -np.inf
    until_s: float = np.inf
    kinds: frozenset[TimeKind] = frozenset()

    def reasons(self, options: ImportOptions, submit: Floats) -> dict[str, Bools]:
        """The jobs that are left out, by reason."""
        return {
            f"submitted before {options.since} (--from)": submit < self.since_s,
            f"submitted at or after {options.until} (--until)": submit >= self.until_s,
        }


def parse_window(options: ImportOptions) -> SubmissionWindow:
    """The window that the options state; dates without an offset are in the zone of the options.

    Raises:
        InputError: If a limit is neither a date nor a number of seconds, both are not of one kind,
            or the window is empty, or a limit is a time that the clocks never show.
    """
    limits, kinds = [-np.inf, np.inf], set[TimeKind]()
    for index, (name, text) in enumerate((("--from", options.since), ("--until", options.until))):
        if text is None:
            continue
        wrong: dict[int, str] = {}
        seconds, found = parse_times(pa.table({name: [text]}), name, wrong, needed=True)
        if wrong:
            raise InputError(wrong[0])
        if found.local and options.zone is not None:
            seconds = to_instants(seconds, find_log_zone(options.zone)).first_s
            if np.isnan(seconds[0]):
                raise InputError(f"{name} {text}: clocks in {options.zone} never show this time")
        limits[index] = float(seconds[0])
        kinds.update(found.found)
    if len({kind == "numbers" for kind in kinds}) > 1 or not limits[0] < limits[1]:
        must = "the first must be before the second, both dates or both numbers of seconds"
        raise InputError(f"--from {options.since} and --until {options.until}: {must}")
    return SubmissionWindow(limits[0], limits[1], frozenset(kinds))


def check_kind(window: SubmissionWindow, kind: TimeKind, zone: str | None) -> None:
    """Check that a window is written as the times of the log, which are of this kind.

    A date without an offset is one of UTC, where dates of the log have their offset.

    Raises:
        InputError: If it is not.
    """
    if any((limit == "numbers") != (kind == "numbers") for limit in window.kinds):
        kinds = "numbers of seconds" if kind == "numbers" else "dates, as 2020-01-31 23:59:59"
        raise InputError(f"--from and --until have to be {kinds}, as the times of this log are")
    if kind == "local" and zone is None and "offset" in window.kinds:
        raise InputError(
            "--from and --until have an offset from UTC, and the dates of this log have none: "
            "leave it out, or say the time zone of the log: --zone"
        )


def measure_carryover(window: SubmissionWindow, parts: Iterator[pa.Table]) -> tuple[int, float]:
    """Jobs submitted before the window that ran in it, and their GPU time in it, s.

    `parts` has the columns `COLUMNS`; only jobs with recorded start and duration count.
    """
    count, gpu_s = 0, 0.0
    for part in parts:
        submit, start, duration, gpus, milli = (
            np.asarray(part[name].cast(pa.float64()).fill_null(np.nan)) for name in COLUMNS
        )
        inside = np.minimum(start + duration, window.until_s) - np.maximum(start, window.since_s)
        rows = (submit < window.since_s) & (inside > 0)
        count += int(rows.sum())
        gpu_s += float((gpus * milli / 1000 * inside)[rows].sum())
    return count, gpu_s

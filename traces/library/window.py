"""A time window on the submissions of a log."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.policies.errors import InputError
from wattkeeper.traces.readers.base import ImportOptions
from wattkeeper.traces.readers.columns import parse_times

COLUMNS = ("submit_time_s", "start_time_s", "duration_s", "gpus", "gpu_milli")


class SubmissionWindow(NamedTuple):
    """Submissions that are kept, in the seconds of the log.

    Attributes:
        since_s: The first; minus infinity: no limit.
        until_s: The first that is not kept any more; infinity: no limit.
        dates: Whether the log has to have dates; None: no limit is given.
    """

    since_s: float = -np.inf
    until_s: float = np.inf
    dates: bool | None = None

    def reasons(self, options: ImportOptions, submit: Floats) -> dict[str, Bools]:
        """The jobs that are left out, by reason."""
        return {
            f"submitted before {options.since} (--from)": submit < self.since_s,
            f"submitted at or after {options.until} (--until)": submit >= self.until_s,
        }


def parse_window(options: ImportOptions) -> SubmissionWindow:
    """The window that the options state.

    Raises:
        InputError: If a limit is neither a date nor a number of seconds, both are not of one kind,
            or the window is empty.
    """
    limits, kinds = [-np.inf, np.inf], set()
    for index, (name, text) in enumerate((("--from", options.since), ("--until", options.until))):
        if text is None:
            continue
        wrong: dict[int, str] = {}
        times = parse_times(pa.table({name: [text]}), name, wrong, None, needed=True)
        if wrong:
            raise InputError(wrong[0])
        limits[index] = float(times.seconds[0])
        kinds.add(times.kinds[1] > 0)
    if len(kinds) > 1 or not limits[0] < limits[1]:
        must = "the first must be before the second, both dates or both numbers of seconds"
        raise InputError(f"--from {options.since} and --until {options.until}: {must}")
    return SubmissionWindow(limits[0], limits[1], kinds.pop() if kinds else None)


def check_kind(window: SubmissionWindow, dates: bool) -> None:
    """Check that a window is written as the times of the log.

    Raises:
        InputError: If it is not.
    """
    if window.dates not in (None, dates):
        kinds = "dates, as 2020-01-31 23:59:59" if dates else "numbers of seconds"
        raise InputError(f"--from and --until have to be {kinds}, as the times of this log are")


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

"""Times of logs on clocks of a zone that their reader states."""

from collections.abc import Mapping
from datetime import tzinfo
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import InputError
from wattkeeper.traces.arrow import replace_column, to_floats
from wattkeeper.traces.library.first_pass import FirstPass
from wattkeeper.traces.readers.base import JobsFormat, TimeKind
from wattkeeper.traces.schema import TIMES
from wattkeeper.traces.times.zones import find_zone, offset_s, to_instants

OPTION: Final = "--zone"
TWICE: Final = "at a time that clocks show twice, as they are set back: the first one is taken"
"""Doubt about local times."""
CHAIN: Final = ("submit_time_s", "eligible_s", "start_time_s", "ended_s", "deadline_s")
"""The times of a job, each not before those that stand before it."""


class ZoneRefused(InputError):
    """The zone that is stated of a log is none, or its times have one already."""


def find_log_zone(zone: str) -> tzinfo:
    """The time zone that the option --zone names.

    Raises:
        ZoneRefused: If there is none.
    """
    try:
        return find_zone(zone)
    except ValueError as error:
        raise ZoneRefused(f"{zone[:100]!r} {error}", OPTION) from None


def know_utc(form: JobsFormat, kind: TimeKind, zone: str | None) -> bool | None:
    """Whether times of a kind are in UTC, once a zone was applied; None: they are no dates."""
    if kind == "numbers":
        return True if "since-1970" in form.times else None
    return kind == "offset" or zone is not None


def check_zone(zone: str | None, form: JobsFormat, result: FirstPass) -> None:
    """Refuse a zone beside times that are in UTC already, or that are no dates.

    Raises:
        ZoneRefused: The message says how to mend it.
    """
    if zone is None or result.kind == "local" or not np.isfinite(result.first_s):
        return
    if know_utc(form, result.kind, None) is None:
        raise ZoneRefused(
            f"{zone}: times of this log are numbers of seconds whose date is not known; leave the "
            "zone out, and state the date of its second 0 (`origin`) where one is needed",
            OPTION,
        )
    if offset_s(find_log_zone(zone), min(max(result.first_s, -6e10), 2.5e11)):
        why = {
            "numbers": "count seconds since 1970 (UTC)",
            "local": "",
            "offset": "have their offset from UTC",
        }[result.kind]
        raise ZoneRefused(f"{zone}: times of this log {why}; leave the zone out", OPTION)


def read_local_times(
    table: pa.Table, zone: tzinfo, names: Mapping[str, str]
) -> tuple[pa.Table, dict[int, str], dict[str, Ints]]:
    """Jobs with times in UTC, faults by row, and the rows of each doubt.

    Of two instants that clocks show as one time, the first that is not before the times of the job
    that precede it is meant.

    Args:
        table: Jobs whose times are seconds since 1970 as the clocks of the zone read, with the
            columns `CHAIN`.
        zone: Of the log's dates.
        names: As in `ConvertedRows`.
    """
    faults: dict[int, str] = {}
    is_twice = np.zeros(table.num_rows, dtype=bool)
    passed_s = np.full(table.num_rows, -np.inf)
    for name in CHAIN:
        local_s = to_floats(table[name]).copy()
        known = np.isfinite(local_s)
        found = to_instants(local_s[known], zone)
        for row in np.flatnonzero(known)[found.is_never].tolist():
            shown = np.datetime64(round(local_s[row]), "s").item()
            faults.setdefault(
                row,
                f"{names.get(name, name)} is {shown}, which clocks in {zone} never show, as "
                "they are set forward; is the --zone right?",
            )
        if name in TIMES:
            is_twice[known] |= found.is_twice
        before_s = passed_s[known]
        is_last = (found.first_s < before_s) & (found.last_s >= before_s)
        utc_s = np.where(is_last, found.last_s, found.first_s)
        local_s[known] = np.where(found.is_never, local_s[known], utc_s)
        passed_s = np.fmax(passed_s, local_s)
        table = replace_column(table, name, pa.array(local_s, mask=~known))
    twice = np.flatnonzero(is_twice).astype(np.int64)
    return table, faults, {TWICE: twice} if len(twice) else {}

"""The date of a trace's second 0, as its text ``time_origin`` states it."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

DATE: Final = re.compile(r"\b(\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)(?: \((.*)\))?")
LAST_DATE_S: Final = 2.5e11
UTC_CLOCK: Final = "UTC"
LOCAL_CLOCK: Final = "the log's clock, whose zone is not recorded"


class TimeOrigin(NamedTuple):
    """The date of second 0.

    Attributes:
        moment: Date and time, without a zone.
        clock: Whose date it is, in the words of the trace; empty if it does not say.
    """

    moment: datetime
    clock: str

    @property
    def of_week_s(self) -> float:
        """Seconds since Monday, 00:00."""
        midnight = datetime(self.moment.year, self.moment.month, self.moment.day)
        return self.moment.weekday() * 86400.0 + (self.moment - midnight).total_seconds()

    @property
    def is_utc(self) -> bool:
        """Whether it is a date of UTC."""
        return self.clock.split(",")[0] == UTC_CLOCK

    @property
    def is_unclear(self) -> bool:
        """Whether it is of UTC or not: so wrote earlier versions, for `csv`."""
        return not self.is_utc and UTC_CLOCK in self.clock


def read_origin(text: object) -> TimeOrigin | None:
    """The date in the text of a trace; None if it has none."""
    match = DATE.search(str(text))
    try:
        return TimeOrigin(datetime.fromisoformat(match[1]), match[2] or "") if match else None
    except ValueError:
        return None


def origin_of(quality: Mapping[str, Any]) -> TimeOrigin | None:
    """The date of second 0 of a trace with these counts of its import."""
    return read_origin(quality.get("time_origin", ""))


def describe_time(time_s: float, *, is_utc: bool) -> str:
    """A time in seconds since 1970 as text with its clock; empty if it is beyond the calendar."""
    if abs(time_s) >= LAST_DATE_S:
        return ""
    moment = datetime.fromtimestamp(time_s, UTC).replace(tzinfo=None)
    return f"{moment.isoformat(' ')} ({UTC_CLOCK if is_utc else LOCAL_CLOCK})"

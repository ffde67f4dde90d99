"""Time zones by name, and what local times mean in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Final, NamedTuple
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    import pandas as pd

    from wattkeeper.policies.arrays import Bools, Floats

OFFSET: Final = r"(?:Z|[+-]\d\d:?\d\d)$"
"""How an offset from UTC ends a time."""
KINDS: Final = "UTC, a name such as Europe/Berlin, or an offset such as +01:00"
"""What a time zone may be, for messages."""


def find_zone(name: str) -> tzinfo:
    """The time zone of a name, or of an offset from UTC.

    Raises:
        ValueError: If there is none; its text says what a zone may be.
    """
    try:
        if name.upper() in ("UTC", "GMT", "Z"):
            return UTC
        if name.startswith(("+", "-")):
            moment = datetime.fromisoformat(f"2000-01-01T00:00{name}")
            return timezone(moment.utcoffset() or timedelta())
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"is no time zone: {KINDS}") from None


def offset_s(zone: tzinfo, time_s: float) -> float:
    """How far the clocks of a zone are ahead of UTC at a time in seconds since 1970, s."""
    offset = datetime.fromtimestamp(time_s, zone).utcoffset()
    return (offset or timedelta()).total_seconds()


class Instants(NamedTuple):
    """What local times mean, in seconds since 1970 (UTC).

    Attributes:
        first_s: The first time that the clocks show each; NaN where they never do, as the clocks
            are set forward.
        last_s: The last time.
    """

    first_s: Floats
    last_s: Floats

    @property
    def is_twice(self) -> Bools:
        """Where clocks show a time twice, as they are set back."""
        twice: Bools = self.first_s < self.last_s
        return twice

    @property
    def is_never(self) -> Bools:
        """Where clocks never show a time."""
        never: Bools = self.first_s != self.first_s
        return never


def to_instants(local_s: Floats, zone: tzinfo) -> Instants:
    """When the clocks of a zone show local times, each as the seconds since 1970 that it reads."""
    if isinstance(zone, timezone):
        fixed = local_s - offset_s(zone, 0.0)
        return Instants(fixed, fixed)
    import numpy as np
    import pandas as pd

    stamps = pd.DatetimeIndex(np.round(local_s * 1e6).astype("datetime64[us]"))
    first, last = (
        stamps.tz_localize(zone, ambiguous=np.full(len(stamps), is_first), nonexistent="NaT")
        for is_first in (True, False)
    )
    return Instants(_to_seconds(first), _to_seconds(last))


def _to_seconds(stamps: pd.DatetimeIndex) -> Floats:
    import numpy as np

    utc = stamps.tz_convert(None).to_numpy().astype("datetime64[us]")
    return np.where(np.isnat(utc), np.nan, utc.astype(np.int64) / 1e6)

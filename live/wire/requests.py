"""Requests of sessions as the controller reads them; nothing else of a message is used."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, get_args

from wattkeeper.live.wire.messages import (
    MESSAGES,
    EnergySource,
    Message,
    SessionCause,
    read_message,
)
from wattkeeper.policies.points.views import Measurement

LONGEST_TEXT: Final = 4096
"""Longest text in a request, characters; messages of failed scripts are cut at 500."""
LARGEST_COUNT: Final = 1 << 53
LARGEST: Final = 1e300
"""Largest amount, s, J or W: sums of such amounts stay finite."""
MOST_LIMITS: Final = 10_000
"""Power limits in one profile."""


class Request(NamedTuple):
    """A request of a session.

    Attributes:
        token: The secret that it states.
        run: The process that it comes from.
        rank: Rank of that process in its training.
        number: Its number on its connection, which the reply repeats.
        message: What is reported or asked.
    """

    token: str
    run: str
    rank: int
    number: int
    message: Message


def parse_request(line: bytes | bytearray) -> Request:
    """A request from a line of JSON.

    Raises:
        ValueError: If it is no request, or a value of it has a wrong type or is out of range.
    """
    try:
        fields = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    kind = fields.get("kind")
    checks = REQUESTS.get(kind) if isinstance(kind, str) else None
    if checks is None:
        raise ValueError("of an unknown kind")
    checks = {**ENVELOPE, **checks}
    if fields.keys() != checks.keys():
        raise ValueError("missing or unknown fields")
    for name, check in checks.items():
        if not check(fields[name]):
            raise ValueError(f"{name} has a wrong type, or is out of range")
    message = read_message(MESSAGES[fields["kind"]], fields)
    return Request(fields["token"], fields["run"], fields["rank"], fields["number"], message)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_amount(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_metric(value: Any) -> bool:
    """Whether it is a metric: those of diverged trainings are not finite."""
    return _is_number_or_none(value) or (type(value) is float and not math.isfinite(value))


def _are_measurements(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MOST_LIMITS
        and all(
            isinstance(point, list)
            and len(point) == len(Measurement._fields)
            and all(_is_amount(point[index]) for index in (0, 1, 5))
            and all(_is_number(point[index]) for index in (2, 6))
            and all(_is_count(point[index]) for index in (3, 4))
            for point in value
        )
    )


Check = Callable[[Any], bool]

ENVELOPE: Final[Mapping[str, Check]] = {
    "token": _is_text,
    "run": _is_text,
    "rank": _is_count,
    "number": _is_count,
    "kind": _is_text,
}
REQUESTS: Final[Mapping[str, Mapping[str, Check]]] = {
    "alive": {},
    "begun": {},
    "ended": {
        "cause": lambda cause: cause in get_args(SessionCause),
        "epochs": _is_count,
        "time_s": _is_amount,
        "energy_j": _is_number_or_none,
        "power_limit_w": _is_number_or_none,
        "limit_set": _is_flag,
        "how": lambda how: how in get_args(EnergySource),
        "message": _is_text,
    },
    "epoch": {
        "epoch": _is_count,
        "metric": _is_metric,
        "time_s": _is_amount,
        "energy_j": _is_number_or_none,
        "is_last": _is_flag,
    },
    "knobs": {"power_limit_w": _is_number_or_none},
    "profiled": {
        "measurements": _are_measurements,
        "report": _is_count,
        "time_s": _is_amount,
        "energy_j": _is_number_or_none,
        "reached": _is_flag,
    },
    "sleep": {"until_s": _is_amount, "power_limit_w": _is_number_or_none},
}
"""The fields of each kind of request beside those of its envelope, and what they may be."""

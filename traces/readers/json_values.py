"""Values of JSON objects, with the path of what is wrong."""

import re
from datetime import UTC, datetime
from typing import Any, Final

SHOWN: Final = 40
WHOLE: Final = re.compile(r"[0-9]{1,9}")
TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)

Json = dict[str, Any]


def quote(value: object) -> str:
    """A value as in a message, cut."""
    text = ascii(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def read_value(record: Json, path: str) -> object:
    """The value at a path such as ``spec.template.spec``; None where a part of it is absent.

    Raises:
        ValueError: If a part of the path is no object.
    """
    value: object = record
    passed = ""
    for key in path.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError(f"{passed[1:]} is {quote(value)}, must be an object")
        value, passed = value.get(key), f"{passed}.{key}"
    return value


def read_object(record: Json, path: str) -> Json:
    """The object at a path; empty where it is absent."""
    value = read_value(record, path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{path} is {quote(value)}, must be an object")
    return value


def read_objects(record: Json, path: str) -> list[Json]:
    """The list of objects at a path; empty where it is absent."""
    value = read_value(record, path)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{path} is {quote(value)}, must be a list")
    for number, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise ValueError(f"{path}[{number}] is {quote(entry)}, must be an object")
    return value


def read_text(record: Json, path: str) -> str | None:
    """The text at a path; None where it is absent or empty."""
    return check_text(read_value(record, path), path)


def check_text(value: object, name: str) -> str | None:
    """A value that must be a text; None where it is absent or empty."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and not re.search("[\ud800-\udfff]", value):
        return value
    raise ValueError(f"{name} is {quote(value)}, must be a text")


def read_key(values: Json, path: str, key: str) -> str | None:
    """The text of a label or an annotation, whose key may hold dots, in the object at `path`."""
    return check_text(values.get(key), f"{path}.{key}")


def read_needed_text(record: Json, path: str) -> str:
    """The text at a path, which must be there."""
    text = read_text(record, path)
    if text is None:
        raise ValueError(f"{path} is absent; every object has one")
    return text


def read_whole(record: Json, path: str) -> int | None:
    """The whole number at a path, from 0 to 999999999; None where it is absent."""
    value = read_value(record, path)
    return None if value is None else check_whole(value, path)


def check_whole(value: object, name: str) -> int:
    """A value that must be a whole number: a number, or a text of digits."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not WHOLE.fullmatch(text):
        raise ValueError(f"{name} is {quote(value)}, must be a whole number from 0 to 999999999")
    return int(text)


def read_time(record: Json, path: str) -> float | None:
    """The time at a path, s since 1970; None where it is absent."""
    value = read_value(record, path)
    if value is None:
        return None
    try:
        if isinstance(value, str) and TIME.fullmatch(value):
            return datetime.fromisoformat(value).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{path} is {quote(value)}, must be a time as 2026-01-31T12:00:00Z")

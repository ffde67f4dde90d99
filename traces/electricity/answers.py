"""Answers of web services that were kept as JSON: WattTime (v3), Electricity Maps (v3, v4)."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.limits import MOST_JSON_BYTES
from wattkeeper.traces.readers.csvfile import quote, read_whole

POINT: Final = ("point_time", "value")
META: Final = ("signal_type", "units", "region")
LISTS: Final = ("data", "history", "forecast")
"""Keys under which answers have their values."""
MAPS_ZONE: Final = "Electricity Maps zone"
"""Column of the zones of Electricity Maps; tells its tables from others."""
MAPS_VALUES: Final = ("carbonIntensity", "value", "price")
NEEDED: Final = (
    'is no answer of WattTime, {"data": [{"point_time": ..., "value": ...}, ...]}, nor of '
    'Electricity Maps, {"zone": ..., "history": [{"datetime": ..., "carbonIntensity": ...}, ...]}'
)


def read_answers(path: Path) -> pa.Table:
    """One answer, or a list of them, as columns of text.

    Of WattTime: `POINT`, and what ``meta`` says, `META`. Of Electricity Maps: ``datetime``, the
    first of `MAPS_VALUES` that it has, `MAPS_ZONE`, ``unit``, ``emissions`` (direct or of the life
    cycle) and ``estimated``, all empty where an answer does not say.

    Raises:
        TraceError: If it is neither, or answers of both, or of two quantities, are in one file.
    """
    try:
        content: Any = json.loads(read_whole(path, MOST_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"is no JSON file: {error}", path) from error
    answers = content if isinstance(content, list) else [content]
    pairs = []
    for answer in answers:
        points = _points(answer)
        if points is None:
            raise TraceError(NEEDED, path)
        pairs += [(point, answer) for point in points]
    kinds = {"datetime" in point for point, _ in pairs}
    if len(kinds) > 1:
        raise TraceError("mixes answers of WattTime and of Electricity Maps", path)
    columns = _maps_columns(pairs, path) if kinds == {True} else _watttime_columns(pairs)
    return pa.table({name: pa.array(texts, pa.string()) for name, texts in columns.items()})


def _points(answer: Any) -> list[dict[str, Any]] | None:
    """The values of an answer: those of its list, or the answer itself; None if there are none."""
    if not isinstance(answer, dict):
        return None
    points = next((answer[key] for key in LISTS if key in answer), None)
    points = [answer] if points is None and "datetime" in answer else points
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        return None
    return points


def _watttime_columns(pairs: Sequence[tuple[Any, Any]]) -> dict[str, list[str]]:
    columns = {name: [_text(point.get(name)) for point, _ in pairs] for name in POINT}
    metas = [meta if isinstance(meta := answer.get("meta"), dict) else {} for _, answer in pairs]
    return columns | {name: [_text(meta.get(name)) for meta in metas] for name in META}


def _maps_columns(pairs: Sequence[tuple[Any, Any]], path: Path) -> dict[str, list[str]]:
    held = Counter(key for point, _ in pairs for key in MAPS_VALUES if key in point)
    if len(held) != 1:
        state = f"has values of {' and '.join(held)}" if held else "has no values"
        raise TraceError(f"{state}: one of {', '.join(MAPS_VALUES)} must be in each object", path)
    (key,) = held

    def say(*names: str) -> list[str]:
        """What each point, or else its answer, says under the first of these names."""
        return [
            next((_text(each[n]) for each in (point, answer) for n in names if each.get(n)), "")
            for point, answer in pairs
        ]

    columns = {
        "datetime": [_text(point.get("datetime")) for point, _ in pairs],
        key: [_text(point.get(key)) for point, _ in pairs],
        MAPS_ZONE: say("zone"),
        "unit": say("unit", "units", "carbonIntensityUnit"),
        "emissions": say("emissionFactorType"),
        "estimated": say("isEstimated"),
    }
    for name in ("unit", "emissions"):
        _refuse_several(name, columns[name], path)
    return columns


def _refuse_several(name: str, texts: Sequence[str], path: Path) -> None:
    other = next((row for row, text in enumerate(texts) if text != texts[0]), None)
    if other is not None:
        found = f"{name} is {quote(texts[other])}, and {quote(texts[0])} in row 1"
        raise TraceError(f"{found}; a series has one", f"{path}, row {other + 1}")


def _text(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "replace").decode("utf-8")


def count_estimated(table: pa.Table) -> int:
    """How many values of Electricity Maps are estimated."""
    texts: list[str] = table["estimated"].to_pylist()
    return texts.count("True")


def only_text(table: pa.Table, name: str) -> str:
    """The text of a column that is the same in all rows."""
    return str(table[name][0].as_py())

"""Readings of GPUs as text of Prometheus, with a time behind each value."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.traces.formats.power_log.readings import (
    BLANK,
    COUNTER,
    GPUS,
    MILLISECONDS,
    NODES,
    USAGE,
    Faults,
    FileReadings,
    host_of,
)
from wattkeeper.traces.power.spans import MOST_POWER_W, Readings
from wattkeeper.traces.readers.base import Kinds
from wattkeeper.traces.readers.textfile import head_lines, text_lines

SAMPLE: Final = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*)\s*\{(?P<labels>.*)\}\s*(?P<value>\S+)(?:\s+(?P<time>\S+))?\s*"
)
LABEL: Final = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def has_power(path: Path) -> bool:
    """Whether the beginning of a text has power or energy of a GPU."""
    return any(line.lower().startswith((USAGE, COUNTER)) for _, line in head_lines(path))


def is_scrape(path: Path) -> bool:
    """Whether a file is text of Prometheus: its first line of a value has labels."""
    for _, line in head_lines(path):
        if not line.startswith("#"):
            return SAMPLE.fullmatch(line.strip()) is not None
    return False


def read_scrape(path: Path, faults: Faults) -> Iterator[FileReadings]:
    """The readings of text of Prometheus."""
    wrong: dict[int, str] = {}
    rows: dict[tuple[str, str, float], list[float]] = {}
    for number, line in text_lines(path):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        faults.rows += 1
        if not text.lower().startswith((USAGE, COUNTER)):
            continue
        try:
            key, column, value = _read_sample(text, host_of(path))
        except ValueError as error:
            wrong[number] = str(error)
            continue
        rows.setdefault(key, [np.nan, np.nan])[column] = value
    faults.add(path, wrong)
    keys, values = list(rows), np.array(list(rows.values()) or np.zeros((0, 2)))
    readings = Readings(
        pa.array([key[0] for key in keys], pa.string()),
        pa.array([key[1] for key in keys], pa.string()),
        np.array([key[2] for key in keys], dtype=float),
        values[:, 0],
        values[:, 1],
    )
    yield FileReadings(readings, Kinds(offset=len(keys)))


def _read_sample(text: str, host: str) -> tuple[tuple[str, str, float], int, float]:
    """Host, GPU and time (s since 1970), 0 for power and 1 for energy, and W or J.

    Raises:
        ValueError: If it is no such line.
    """
    match = SAMPLE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:60]!r} is no value with labels")
    labels = {name.lower(): value for name, value in LABEL.findall(match["labels"])}
    gpu = next((labels[name] for name in GPUS if labels.get(name)), None)
    if gpu is None:
        raise ValueError("has no label gpu or UUID")
    if match["time"] is None:
        raise ValueError(
            "has no time behind its value: write scrapes with times, as the /federate of "
            "Prometheus does, or as CSV"
        )
    try:
        value, time = float(match["value"]), float(match["time"])
    except ValueError:
        raise ValueError(f"{match['value']} {match['time']} are no numbers") from None
    if not np.isfinite(time):
        raise ValueError(f"{match['time']} is no time")
    is_energy = match["name"].lower() == COUNTER
    if not value < (1e18 if is_energy else BLANK):
        value = np.nan
    elif value < 0 or (not is_energy and value > MOST_POWER_W):
        raise ValueError(f"{match['name']} is {value:g}, must be 0 to {MOST_POWER_W:,g} W")
    seconds = time / 1000 if time >= MILLISECONDS else time
    node = next((labels[name] for name in ("hostname", *NODES) if labels.get(name)), host)
    return (node, gpu, seconds), int(is_energy), value / 1000 if is_energy else value

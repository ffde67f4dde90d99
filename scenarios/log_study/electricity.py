"""What electricity costs and emits, from options of the command and the file of nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.inputs.electricity import read_rate
from wattkeeper.scenarios.log_study.nodes import StudyCluster
from wattkeeper.scenarios.spec.sections.electricity import ElectricitySection, RateFile
from wattkeeper.scenarios.spec.sections.section import LARGEST
from wattkeeper.traces.electricity.forms import Quantity

RATES: Final[tuple[Quantity, ...]] = ("price", "carbon")
OF_FILES: Final = ("zone", "origin")
"""Keys that only files of rates need."""


class StudyRates(NamedTuple):
    """What electricity costs and emits in a study.

    Attributes:
        section: As in its scenario; None: not known.
        files: Files that are copied to the folder of the study, by their path in it.
    """

    section: ElectricitySection | None
    files: Mapping[str, Path]


class RateOptions(NamedTuple):
    """Options of the command; None: not given.

    Attributes:
        price: A number, per kWh, or a file of prices.
        currency: Of a price.
        carbon: A number, g per kWh, or a file of carbon intensities.
        zone: Time zone of the log's dates.
    """

    price: str | None
    currency: str | None
    carbon: str | None
    zone: str | None


def read_electricity(options: RateOptions, cluster: StudyCluster, beside: Path) -> StudyRates:
    """What the options state, and otherwise the file of nodes, which is in the folder `beside`.

    Files that the file of nodes names are relative to that folder, those of options to the working
    directory. Each is read here, so that a fault is told of the file itself, before any import.

    Raises:
        InputError: If a rate is neither a number nor a file, a file is wrong, or they do not fit
            together.
    """
    stated: dict[str, Any] = {}
    if cluster.electricity is not None:
        stated = cluster.electricity.model_dump(mode="json", exclude_none=True)
    for key, text in options._asdict().items():
        if text is not None:
            stated[key] = _parse_rate(text, f"--{key}") if key in RATES else text
    files: dict[str, Path] = {}
    for key in RATES:
        rate = stated.get(key)
        if isinstance(rate, dict):
            source = (beside if getattr(options, key) is None else Path()) / rate["file"]
            if not source.is_file():
                raise InputError(f"{key}: there is no file {source}")
            rate["file"] = f"{key}/{source.name}"
            files[rate["file"]] = source
    if not stated:
        return StudyRates(None, {})
    if not files:
        stated = {key: value for key, value in stated.items()
                  if key not in OF_FILES or getattr(options, key, None) is not None}  # fmt: skip
    try:
        section = ElectricitySection.model_validate_json(json.dumps(stated), strict=True)
    except (ValidationError, ValueError) as error:
        given = ", ".join(f"--{key}" for key, text in options._asdict().items() if text is not None)
        raise InputError(f"{given or 'electricity'}: {_explain(error)}") from None
    for key in RATES:
        rate = getattr(section, key)
        if isinstance(rate, RateFile):
            source = files[rate.file]
            read_rate(key, rate.model_copy(update={"file": source.name}), source.parent)
    return StudyRates(section, files)


def _parse_rate(text: str, option: str) -> float | dict[str, str]:
    """A number, or a file as in a scenario."""
    try:
        rate = float(text)
    except ValueError:
        pass
    else:
        if not abs(rate) <= LARGEST or (option == "--carbon" and rate < 0):
            least = "0" if option == "--carbon" else f"{-LARGEST:g}"
            raise InputError(
                f"{option}: found {text!r}; must be a file, or a number from {least} to {LARGEST:g}"
            )
        return rate
    if not Path(text).is_file():
        raise InputError(f"{option}: found {text!r}; must be a number or a file")
    return {"file": text}


def _explain(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    detail = error.errors()[0]
    keys = ".".join(str(step) for step in detail["loc"] if str(step) not in ("float", "RateFile"))
    text = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "string_pattern_mismatch":
        text = f"found {detail['input']!r}; must be up to 8 letters, as EUR, or one of €, $, £, ¥"
    return f"{keys}: {text}".removeprefix(": ")

"""What electricity costs and emits, from options of the command and the file of nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.log_study.nodes import StudyCluster
from wattkeeper.scenarios.spec.sections.electricity import ElectricitySection

RATES: Final = ("price", "carbon")


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


def read_electricity(options: RateOptions, cluster: StudyCluster) -> ElectricitySection | None:
    """What the options state, and otherwise the file of nodes; files by absolute path.

    Raises:
        InputError: If an option is neither a number nor a file, or they do not fit together.
    """
    stated: dict[str, Any] = {}
    if cluster.electricity is not None:
        stated = cluster.electricity.model_dump(mode="json", exclude_none=True)
    for key, text in options._asdict().items():
        if text is not None:
            stated[key] = _parse_rate(text, f"--{key}") if key in RATES else text
    for rate in (stated.get(key) for key in RATES):
        if isinstance(rate, dict):
            rate["file"] = str(Path(rate["file"]).absolute())
    if not stated:
        return None
    try:
        return ElectricitySection.model_validate_json(json.dumps(stated), strict=True)
    except (ValidationError, ValueError) as error:
        given = ", ".join(f"--{key}" for key, text in options._asdict().items() if text is not None)
        raise InputError(f"{given or 'electricity'}: {_explain(error)}") from None


def _parse_rate(text: str, option: str) -> float | dict[str, str]:
    """A number, or a file as in a scenario."""
    try:
        return float(text)
    except ValueError:
        pass
    if not Path(text).is_file():
        raise InputError(f"{option}: found {text!r}; must be a number or a file")
    return {"file": text}


def _explain(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    detail = error.errors()[0]
    keys = ".".join(str(step) for step in detail["loc"] if str(step) not in ("float", "RateFile"))
    return f"{keys}: {detail['msg'].removeprefix('Value error, ')}".removeprefix(": ")

"""Fits: the statistical description of a trace of jobs, in one small JSON file.

A fit contains no jobs. Shipped fits are in this folder; their numbers are published facts, each
with its source. Others are computed from a trace by `wattkeeper.traces.generate.fit`.
"""

import json
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, ValidationError, model_validator

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.described import Described
from wattkeeper.policies.errors import InputError, Problem, TraceError
from wattkeeper.policies.numerics import portable
from wattkeeper.policies.numerics.portable import each
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.traces.files.regular import open_file
from wattkeeper.traces.limits import MOST_DETAILS_BYTES

HOURS: Final = 24
DAYS: Final = 7
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0
LOWEST: Final = 1e-3
"""Lower bound of a relative rate: an hour without any submission is nearly skipped, not quite."""

Positive = Annotated[float, Field(gt=0, le=1e15)]
Share = Annotated[float, Field(ge=0, le=1)]
Rhythm = Annotated[float, Field(ge=LOWEST, le=1000)]
SHARES_TOLERANCE: Final = 1e-6


class _Model(Described):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class Quantiles(_Model):
    """A distribution of positive values, log-linear between its quantiles."""

    levels: tuple[Share, ...] = Field(min_length=2)
    """Shares of the values that are at most the quantile; from 0 to 1, rising."""
    values: tuple[Positive, ...] = Field(min_length=2)
    """The quantiles; never falling."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if len(self.levels) != len(self.values):
            text = f"{len(self.levels)} levels and {len(self.values)} values; must be as many"
            raise ValueError(text)
        if self.levels[0] != 0 or self.levels[-1] != 1:
            raise ValueError("levels must begin with 0 and end with 1")
        if any(b <= a for a, b in pairwise(self.levels)):
            raise ValueError("levels must rise")
        if any(b < a for a, b in pairwise(self.values)):
            raise ValueError("values must not fall")
        return self

    def evaluate(self, levels: Floats) -> Floats:
        """The quantile at each level."""
        logs = each(math.log, np.array(self.values))
        return portable.exp(np.interp(levels, self.levels, logs))

    @property
    def mean(self) -> float:
        """The mean of the distribution, in the unit of its values."""
        values = np.array(self.values)
        logs = each(math.log, values)
        rise, step = np.diff(logs), np.diff(values)
        flat = rise < 1e-9
        inside = np.where(flat, values[:-1], step / np.where(flat, 1.0, rise))
        return float(np.sum(inside * np.diff(self.levels)))


class Demand(_Model):
    """Jobs with equal GPU demand."""

    gpus: Annotated[int, Field(gt=0, lt=2**31)]
    """GPUs of such a job."""
    gpu_milli: Annotated[int, Field(ge=1, le=1000)] = 1000
    """Thousandths of each of them."""
    share: Annotated[float, Field(gt=0, le=1)]
    """Of all jobs."""
    duration_s: Quantiles
    """Run times in seconds."""


class Memory(_Model):
    """One exponential term of the autocorrelation of gaps between arrivals."""

    jobs: Positive
    """Number of arrivals after which this correlation has decayed to 1/e."""
    weight: Annotated[float, Field(gt=0, le=1)]
    """Share of the variance of the gaps' normal scores."""


class Arrivals(_Model):
    """The arrival process."""

    jobs_per_day: Positive
    """Mean rate."""
    hour_of_day: Annotated[tuple[Rhythm, ...], Field(min_length=HOURS, max_length=HOURS)]
    """Rate in each hour over the mean rate."""
    day_of_week: Annotated[tuple[Rhythm, ...], Field(min_length=DAYS, max_length=DAYS)]
    """Rate on each day over the mean rate."""
    first_day: Literal["Monday", "first day of the trace"]
    """Day to which the first number of `day_of_week` refers."""
    gap_s: Quantiles | None = None
    """Time between arrivals in seconds after the rhythms are removed; None: exponential, so that
    arrivals are a Poisson process."""
    memory: tuple[Memory, ...] = ()
    """Correlation of gaps; weights sum up to at most 1. The rest is uncorrelated."""

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        if sum(part.weight for part in self.memory) > 1 + SHARES_TOLERANCE:
            raise ValueError("weights of memory add up to more than 1")
        for name, factors in (("hour_of_day", self.hour_of_day), ("day_of_week", self.day_of_week)):
            mean = sum(factors) / len(factors)
            if abs(mean - 1) > 1e-3:
                raise ValueError(f"the mean of {name} is {mean:.4g}, must be 1")
        return self


class Users(_Model):
    """The submitting users."""

    shares: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)]
    """Shares of the jobs by user, in descending order."""
    others: Annotated[int, Field(ge=0, le=10**7)]
    """Number of further users, who share the remaining jobs evenly."""
    repeat_soon: Share
    """Probability that a job submitted within a minute of its predecessor has the same user for
    that reason alone; otherwise its user is drawn from all."""
    repeat_later: Share
    """The same for a later job."""

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        left = 1 - sum(self.shares)
        if left < -SHARES_TOLERANCE or (left > SHARES_TOLERANCE and not self.others):
            raise ValueError(f"shares add up to {1 - left:.6g}; must be 1 with the others' part")
        return self


class Groups(_Model):
    """Recurrences of one job. A group has one user and one GPU demand."""

    share: Annotated[float, Field(gt=0, le=1)]
    """Share of the jobs that belong to a group."""
    size: Quantiles
    """Jobs of a group."""
    distance_jobs: Quantiles
    """Number of jobs submitted from one recurrence of a group to the next."""
    likeness: Share
    """Share of the variance of the run times' normal scores within a demand that is between groups:
    1 if all runs of a group have equal run times."""


class Fit(_Model):
    """The statistical description of a trace of jobs."""

    version: Literal[1] = 1
    """Of this format."""
    source: Annotated[str, Field(min_length=1)]
    """Citation of the fitted trace."""
    licence: Annotated[str, Field(min_length=1)]
    """SPDX name or what is known, of the fitted trace."""
    jobs: Annotated[int, Field(gt=0)]
    """Number of fitted jobs."""
    absent: tuple[str, ...]
    """What could not be fitted, and what was assumed or left out instead."""
    facts: dict[str, str] = Field(default_factory=dict)
    """Source of each number, by its path in this file; for fits from published facts."""
    whole_seconds: bool
    """Whether times are in whole seconds."""
    arrivals: Arrivals
    demands: Annotated[tuple[Demand, ...], Field(min_length=1)]
    """By GPU demand, ascending."""
    users: Users | None
    """Absent if the trace does not name users."""
    groups: Groups | None
    """Absent if the trace does not name groups."""

    @model_validator(mode="after")
    def _check_demands(self) -> Self:
        total = sum(demand.share for demand in self.demands)
        if abs(total - 1) > SHARES_TOLERANCE:
            raise ValueError(f"shares of demands add up to {total:.6g}, must be 1")
        keys = [(demand.gpus, demand.gpu_milli) for demand in self.demands]
        if sorted(set(keys)) != keys:
            raise ValueError("demands must ascend by gpus, then gpu_milli, without repeats")
        return self

    @property
    def mean_gpu_s(self) -> float:
        """Mean GPU seconds of a job."""
        return sum(
            demand.share * demand.gpus * demand.gpu_milli / 1000 * demand.duration_s.mean
            for demand in self.demands
        )


def list_shipped() -> tuple[str, ...]:
    """Names of the shipped fits, sorted."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.json")))


def load_fit(name_or_path: str | Path) -> Fit:
    """Read a fit: a shipped one by its name, or a file.

    Raises:
        InputError: If there is none; the message names the shipped ones.
        TraceError: If the file is not a fit; the problems say where.
    """
    text = str(name_or_path)
    if text in list_shipped():
        return _parse((Path(__file__).parent / f"{text}.json").read_bytes(), text)
    path = Path(text)
    try:
        with open_file(path) as file:
            data = file.read(MOST_DETAILS_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"no fit {text!r} ({reason}){did_you_mean(text, list_shipped())}; give a file that "
            f"`wattkeeper traces fit` wrote, or one of {', '.join(list_shipped())}"
        ) from error
    if len(data) > MOST_DETAILS_BYTES:
        raise TraceError(f"is larger than {MOST_DETAILS_BYTES:,} bytes: no fit", path)
    return _parse(data, text)


def _parse(data: bytes, file: str) -> Fit:
    try:
        return Fit.model_validate_json(data)
    except ValidationError as error:
        if any(
            e["type"] in ("json_invalid", "model_type") and not e["loc"] for e in error.errors()
        ):
            text = "is not a fit (JSON, as written by `wattkeeper traces fit`)"
            raise TraceError(text, file) from error
        problems = [
            Problem(
                f"{'.'.join(map(str, e['loc'])) or 'the file'}: "
                f"{e['msg'].removeprefix('Value error, ')}",
                file,
            )
            for e in error.errors(include_url=False, include_input=False)
        ]
        raise TraceError(problems) from error


def to_json(fit: Fit) -> str:
    """Serialise a fit; equal fits give the same text."""
    text = json.dumps(fit.model_dump(mode="json"), indent=2, ensure_ascii=False)
    return re.sub(r"\[[-+0-9.eE,\s]+\]", lambda m: re.sub(r"\s+", " ", m[0]), text) + "\n"


def round_values(values: Sequence[float] | Floats) -> tuple[float, ...]:
    """Round values to six significant digits, independent of the machine."""
    return tuple(float(f"{value:.6g}") for value in values)

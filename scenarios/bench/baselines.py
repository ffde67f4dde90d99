"""The file of baselines: the entries that `wattkeeper bench` runs, and their accepted results.

`--update` writes `expected`; the other keys are written by hand, as in a scenario.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.scenarios.spec.schema import MAX_SEEDS
from wattkeeper.scenarios.spec.sections.section import Section
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.regular import open_file

SHIPPED: Final = Path(__file__).parents[1] / "baselines.json"

Core = Literal["compiled", "interpreted"]
"""How the core runs; only speeds of the same kind are comparable."""


class JobsTrace(Section):
    """A trace of jobs, as `wattkeeper traces generate jobs` makes it."""

    kind: Literal["jobs"]
    fit: str = "philly"
    """A shipped fit, or a file of one; a relative path begins at the file of baselines."""
    jobs: Annotated[int, Field(gt=0, le=10_000_000)]
    """Number of jobs."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Seed of the generator."""
    load: Annotated[float, Field(gt=0)]
    """Requested share of the GPUs' time."""
    gpus: PositiveInt
    """GPUs that the load refers to."""


class ModelsTrace(Section):
    """A trace of jobs that train models, each but the first a mutation of an earlier one."""

    kind: Literal["models"]
    models: Annotated[int, Field(gt=0, le=100_000)]
    """Number of models."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Seed of the generator."""
    every_s: Annotated[float, Field(gt=0)]
    """Interval between submissions, s."""


Tolerance = Annotated[float, Field(gt=0)]


class ExpectedVariant(Section):
    """Expected results of a variant, over all seeds."""

    digest: str | None
    """SHA-256 of its tables; null where they are not deterministic."""
    events: int | None
    """Number of simulated events; null where the tables are not deterministic."""
    decisions: int | None
    """Rows of the journal; null where the tables are not deterministic."""
    metrics: dict[str, float | None]
    """Means over seeds, as in `summary.json`; null where there is none."""


class ExpectedResult(Section):
    """Accepted results of an entry."""

    versions: dict[str, str]
    """Versions of the libraries that digests may depend on."""
    inputs: dict[str, str]
    """SHA-256 of the content of its input traces, by name."""
    variants: dict[str, ExpectedVariant]
    """Results by variant."""
    cpu: dict[Core, float]
    """CPU time of a run over that of the reference loop, by kind of core."""


class Entry(Section):
    """A scenario with settings, and its expected results."""

    name: str
    """Name in reports."""
    scenario: str
    """Name of a shipped scenario, or a file relative to the file of baselines."""
    settings: tuple[str, ...] = ()
    """Settings in the form of `--set`."""
    seeds: Annotated[int, Field(gt=0, le=MAX_SEEDS)] | None = None
    """Last seed, from 1; the scenario's seeds if absent."""
    trace: Annotated[JobsTrace | ModelsTrace, Field(discriminator="kind")] | None = None
    """Generated trace for `workload.trace`; the scenario's trace if absent."""
    live: bool = False
    """Whether it is run live (`--live`); then `tolerances` are needed."""
    tolerances: Annotated[dict[str, Tolerance], Field(min_length=1)] | None = None
    """Relative tolerance by metric, where results are not deterministic. Everything is compared
    exactly if absent."""
    expected: ExpectedResult | None = None
    """Accepted results; absent until the first `--update`."""

    @model_validator(mode="after")
    def _check_live(self) -> Entry:
        if self.live and self.tolerances is None:
            raise ValueError("live: a live run is never the same twice; give tolerances")
        return self


class Baselines(Section):
    """Content of the file."""

    entries: tuple[Entry, ...] = ()
    """Entries in the order in which they run."""

    @model_validator(mode="after")
    def _check_names(self) -> Baselines:
        names = [entry.name for entry in self.entries]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise ValueError(f"entries: the name {duplicates[0]!r} occurs twice")
        return self


def read_baselines(path: Path) -> Baselines:
    """Read the baselines of a file.

    Raises:
        InputError: If the file is unreadable or invalid; it has all problems.
    """
    try:
        with open_file(path) as file:
            text = file.read().decode()
        return Baselines.model_validate_json(text, strict=True)
    except OSError as error:
        text = f"cannot be read: {error.strerror or error}; `--update` makes one"
        raise InputError(text, path) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8", path) from None
    except ValidationError as error:
        raise InputError(
            [
                Problem(
                    f"{'.'.join(map(str, detail['loc'])) or 'file'}: {detail['msg']}", str(path)
                )
                for detail in error.errors()
            ]
        ) from None


def write_baselines(path: Path, baselines: Baselines) -> None:
    """Replace the file atomically.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    plain = baselines.model_dump(mode="json", exclude_defaults=True)
    text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with replace_file(path, make_parents=True) as fresh:
        fresh.write_text(text, encoding="utf-8")


def select_entries(baselines: Baselines, names: Sequence[str], path: Path) -> list[Entry]:
    """The entries whose name or scenario is given; all if no names are given.

    Raises:
        InputError: If no entry matches a name.
    """
    known = {word for entry in baselines.entries for word in (entry.name, entry.scenario)}
    for name in names:
        if name not in known:
            there = ", ".join(entry.name for entry in baselines.entries) or "nothing yet"
            meant = did_you_mean(name, known)
            text = f"has no entry {name!r}{meant}; there is {there}. `--update` adds a scenario"
            raise InputError(text, path)
    return [
        entry
        for entry in baselines.entries
        if not names or entry.name in names or entry.scenario in names
    ]

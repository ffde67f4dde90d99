"""The file of baselines: what `wattkeeper bench` runs, and what came out when it was accepted.

A key of an entry is as in a scenario; `expected` is written by `--update`, the rest by hand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.scenarios.spec.schema import MAX_SEEDS, Section
from wattkeeper.traces.files.atomic import replace_file

SHIPPED: Final = Path(__file__).parents[1] / "baselines.json"

Core = Literal["compiled", "interpreted"]
"""How the core runs; speeds of one kind alone can be compared."""


class MadeJobs(Section):
    """A trace of jobs, as `wattkeeper traces generate jobs` makes it."""

    kind: Literal["jobs"]
    fit: str = "philly"
    """A shipped fit, or a file of one; a relative path begins at the file of baselines."""
    jobs: Annotated[int, Field(gt=0, le=10_000_000)]
    """How many."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Of all of it."""
    load: Annotated[float, Field(gt=0)]
    """Share of the GPUs' time that they ask for."""
    gpus: PositiveInt
    """GPUs that the load refers to."""


class MadeModels(Section):
    """A trace of jobs that train models, each but the first a mutation of an earlier one."""

    kind: Literal["models"]
    models: Annotated[int, Field(gt=0, le=100_000)]
    """How many."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Of what is drawn."""
    every_s: Annotated[float, Field(gt=0)]
    """From one submission to the next, s."""


Tolerance = Annotated[float, Field(gt=0)]


class ExpectedVariant(Section):
    """What a variant left, all seeds together."""

    digest: str | None
    """SHA-256 of its tables; null where they differ from run to run."""
    events: int | None
    """Events that the simulator handled; null likewise."""
    decisions: int | None
    """Rows of the journal; null likewise."""
    metrics: dict[str, float | None]
    """Means over seeds, as in `summary.json`; null where there is none."""


class ExpectedResult(Section):
    """What came out."""

    versions: dict[str, str]
    """Of what digests may depend on."""
    inputs: dict[str, str]
    """SHA-256 of the content of the traces that it read, by name."""
    variants: dict[str, ExpectedVariant]
    """By name."""
    cpu: dict[Core, float]
    """CPU time of a run over that of the reference loop."""


class Entry(Section):
    """A scenario with settings, and what is expected of it."""

    name: str
    """How reports call it."""
    scenario: str
    """A shipped one's name, or a file; a relative path begins at the file of baselines."""
    settings: tuple[str, ...] = ()
    """As `--set` takes them."""
    seeds: Annotated[int, Field(gt=0, le=MAX_SEEDS)] | None = None
    """Seeds 1 to this one; the scenario's if absent."""
    trace: Annotated[MadeJobs | MadeModels, Field(discriminator="kind")] | None = None
    """What is generated and taken for `workload.trace`; the scenario's trace if absent."""
    live: bool = False
    """Whether it is run live (`--live`); then `tolerances` are needed."""
    tolerances: Annotated[dict[str, Tolerance], Field(min_length=1)] | None = None
    """Where results differ from run to run: what is compared, and how far it may be off, as a share
    of the baseline. Everything is compared exactly if absent."""
    expected: ExpectedResult | None = None
    """Nothing yet if absent."""

    @model_validator(mode="after")
    def _live_differs_from_run_to_run(self) -> Entry:
        if self.live and self.tolerances is None:
            raise ValueError("live: a live run is never the same twice; give tolerances")
        return self


class Baselines(Section):
    """The whole file."""

    entries: tuple[Entry, ...] = ()
    """In the order in which they run."""

    @model_validator(mode="after")
    def _names_differ(self) -> Baselines:
        names = [entry.name for entry in self.entries]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"entries: two of them are called {twice[0]!r}")
        return self


def read(path: Path) -> Baselines:
    """The baselines in a file.

    Raises:
        InputError: If it cannot be read or is none; all problems at once.
    """
    try:
        return Baselines.model_validate_json(path.read_text(encoding="utf-8"), strict=True)
    except OSError as error:
        text = f"cannot be read: {error.strerror or error}; `--update` makes one"
        raise InputError(Problem(text, str(path))) from None
    except UnicodeDecodeError:
        raise InputError(Problem("is not UTF-8", str(path))) from None
    except ValidationError as error:
        raise InputError([
            Problem(f"{'.'.join(map(str, detail['loc'])) or 'file'}: {detail['msg']}", str(path))
            for detail in error.errors()
        ]) from None  # fmt: skip


def write(path: Path, baselines: Baselines) -> None:
    """Replace the file at once, or leave it as it was.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    plain = baselines.model_dump(mode="json", exclude_defaults=True)
    text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with replace_file(path) as fresh:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")


def chosen(baselines: Baselines, names: Sequence[str], path: Path) -> list[Entry]:
    """The entries that are called so, or whose scenario is; all if no names are given.

    Raises:
        InputError: If there is none of a name.
    """
    known = {word for entry in baselines.entries for word in (entry.name, entry.scenario)}
    for name in names:
        if name not in known:
            there = ", ".join(entry.name for entry in baselines.entries) or "nothing yet"
            text = f"has no entry {name!r}; there is {there}. `--update` adds a scenario"
            raise InputError(Problem(text, str(path)))
    return [
        entry
        for entry in baselines.entries
        if not names or entry.name in names or entry.scenario in names
    ]

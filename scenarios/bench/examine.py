"""Regression benchmarks: scenarios against what came out of them when it was accepted.

What is simulated is the same each time, so any change counts, for better or worse, until it is
accepted. What trains for real differs from run to run and is held to tolerances.
"""

from __future__ import annotations

import json
import math
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from wattkeeper.policies.errors import EnvironmentLacks, InputError, WattkeeperError
from wattkeeper.scenarios.bench.baselines import Entry, ExpectedResult, ExpectedVariant
from wattkeeper.scenarios.bench.speed import SLOWER, Speed, core, measure
from wattkeeper.scenarios.bench.traces import NAME, make
from wattkeeper.scenarios.run.run import ScenarioResult, run
from wattkeeper.scenarios.spec.loading import LoadedScenario, load, shipped
from wattkeeper.scenarios.spec.schema import (
    MixedCluster,
    RecurringWorkload,
    SyntheticSource,
    TraceWorkload,
)
from wattkeeper.traces.files.user_dirs import library_folder
from wattkeeper.traces.library import folder, store

DIGEST_LIBRARIES: Final = ("numpy", "pyarrow")
SYNTHETIC: Final = "synthetic"
"""The name of profiles that a scenario generates."""

OTHER_VERSIONS: Final = 0.01
"""How far metrics may be off, as a share, where digests differ under other versions."""

State = Literal["same", "changed", "failed", "new", "skipped"]


@dataclass(frozen=True)
class Change:
    """One thing that is not as in the baseline.

    Attributes:
        variant: Where; empty: the entry as a whole.
        quantity: What: a metric's name, `digest`, `events`, `decisions`, `speed`, `input NAME`.
        baseline: What it was; None: it was not there, or undefined.
        now: What it is; None: it is not there, or undefined.
    """

    variant: str
    quantity: str
    baseline: float | str | None
    now: float | str | None

    @property
    def share(self) -> float | None:
        """By how much it grew, as a share of what it was."""
        if isinstance(self.baseline, str) or isinstance(self.now, str):
            return None
        if not self.baseline or self.now is None:
            return None
        return self.now / self.baseline - 1


@dataclass
class EntryResult:
    """What became of an entry.

    Attributes:
        entry: The entry.
        state: What became of it.
        why: Why it was skipped or failed; else empty.
        changes: What is not as in the baseline.
        notes: What a reader should know.
        found: What came out; None if nothing did.
        speed: How fast it was; None where that was not measured.
        runs: Variants times seeds.
    """

    entry: Entry
    state: State
    why: str = ""
    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    found: ExpectedResult | None = None
    speed: Speed | None = None
    runs: int = 0


def examine(entry: Entry, beside: Path, accept: bool = False) -> EntryResult:
    """Run an entry and hold it against its baseline.

    Args:
        entry: The entry.
        beside: Folder of the file that it stands in.
        accept: Whether what is found becomes the baseline.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="wattkeeper-bench-") as scratch:
            loaded = _load(entry, beside, Path(scratch))
            if absent := _absent(loaded):
                return EntryResult(entry, "skipped", absent)
            return _examine(entry, loaded, Path(scratch), accept)
    except EnvironmentLacks as error:
        return EntryResult(entry, "skipped", str(error))
    except WattkeeperError as error:
        return EntryResult(entry, "failed", str(error))
    except Exception as error:  # a defect of one entry does not hide what the others find
        return EntryResult(entry, "failed", f"{type(error).__name__}: {error}")


def _load(entry: Entry, beside: Path, scratch: Path) -> LoadedScenario:
    settings = list(entry.settings)
    if entry.trace is not None:
        made = scratch / NAME
        folder.write(make(entry.trace, beside), made)
        settings.append(f"workload.trace={json.dumps(str(made))}")
    own = os.path.normpath(beside / entry.scenario)  # its folder may not be there yet
    name = entry.scenario if entry.scenario in shipped() else own
    return load(name, settings, None if entry.seeds is None else range(1, entry.seeds + 1))


def _absent(loaded: LoadedScenario) -> str:
    """What to say of a trace that is not at hand; empty if all are."""
    scenario = loaded.scenario
    names: list[object] = []
    if isinstance(scenario.workload, RecurringWorkload | TraceWorkload):
        names.append(scenario.workload.profiles)
    if isinstance(scenario.workload, TraceWorkload):
        names.append(scenario.workload.trace)
    if isinstance(scenario.cluster, MixedCluster):
        names.append(scenario.cluster.nodes)
    for name in names:
        if isinstance(name, str):
            try:
                store.locate(name)
            except InputError:
                return f"trace {name!r} is not in the library ({library_folder()})"
    return ""


def _examine(entry: Entry, loaded: LoadedScenario, scratch: Path, accept: bool) -> EntryResult:
    laps, begun = 0, False

    def progress(_done: int, _all: int) -> None:
        nonlocal begun
        begun = True

    def lap() -> ScenarioResult:
        nonlocal laps
        laps += 1
        place = scratch / f"{laps}"
        try:
            return run(
                loaded, progress=progress, trainings=place, live=place if entry.live else None
            )
        except EnvironmentLacks as error:
            if begun:  # it is no lack of this place, which would show before
                raise RuntimeError(f"it broke off: {error}") from error
            raise

    done = lap()
    found = _expected(entry, done)
    outcome = EntryResult(entry, "same", found=found, runs=len(done.results))
    expected = entry.expected
    _check_tolerances(entry, found)
    if expected is not None and (other := _other_input(entry, loaded, expected, found)):
        return EntryResult(entry, "skipped", other)
    if entry.tolerances is None:
        digests: set[str] = set()
        kind = core()
        before = None if expected is None else expected.cpu.get(kind)
        outcome.speed = measure(lambda: digests.add(_digest(lap())), before, accept)
        found.cpu[kind] = outcome.speed.ratio
        if digests != {_digest(done)}:
            outcome.changes.append(Change("", "digest", "the same in each run", "differs"))
    if expected is None:
        outcome.state = "new"
        return outcome
    outcome.changes += _changes(entry, expected, found, outcome.notes)
    if outcome.changes:
        outcome.state = "changed"
    return outcome


def _check_tolerances(entry: Entry, found: ExpectedResult) -> None:
    """Refuse what is never compared, as a misspelt name.

    Raises:
        InputError: If there is a tolerance of a metric that no variant has or had.
    """
    sides = [side for side in (entry.expected, found) if side is not None]
    known = {name for side in sides for one in side.variants.values() for name in one.metrics}
    unknown = [name for name in entry.tolerances or () if name not in known]
    if unknown:
        raise InputError(f"tolerances: no variant has the metric {', '.join(unknown)}")


def _digest(done: ScenarioResult, variant: str | None = None) -> str:
    state = sha256()
    for result in done.results:
        if variant in (None, result.variant):
            state.update(result.digest.encode())
    return state.hexdigest()


def _expected(entry: Entry, done: ScenarioResult) -> ExpectedResult:
    """What came out, in the form of a baseline."""
    exact = entry.tolerances is None
    variants = {}
    for name, about in done.summary["variants"].items():
        results = [result for result in done.results if result.variant == name]
        metrics = {metric: seen["mean"] for metric, seen in about["metrics"].items()}
        if entry.tolerances is not None:
            metrics = {name: metrics[name] for name in entry.tolerances if name in metrics}
        variants[name] = ExpectedVariant(
            digest=_digest(done, name) if exact else None,
            events=sum(result.events for result in results) if exact else None,
            decisions=sum(len(r.tables["decisions"]) for r in results) if exact else None,
            metrics=metrics,
        )
    return ExpectedResult(
        versions=digest_versions(),
        inputs={each["trace"]: each["content"] for each in done.manifest["inputs"]},
        variants=variants,
        cpu={},
    )


def digest_versions() -> dict[str, str]:
    """What digests may depend on."""
    python = ".".join(platform.python_version_tuple()[:2])
    libraries = {name: version(name) for name in DIGEST_LIBRARIES}
    return {"python": python, **libraries, "machine": platform.machine()}


def _other_input(
    entry: Entry, loaded: LoadedScenario, expected: ExpectedResult, found: ExpectedResult
) -> str:
    """What to say where a trace of the library is not the one that the baseline was made with."""
    made = {NAME} if entry.trace is not None else set()
    if isinstance(getattr(loaded.scenario.workload, "profiles", None), SyntheticSource):
        made.add(SYNTHETIC)
    for name, content in expected.inputs.items():
        if name not in made and found.inputs.get(name, content) != content:
            return f"trace {name!r} of the library is not the one that the baseline was made with"
    return ""


def _changes(
    entry: Entry, expected: ExpectedResult, found: ExpectedResult, notes: list[str]
) -> list[Change]:
    changes = [
        Change("", f"input {name}", before[:12], found.inputs.get(name, "missing")[:12])
        for name, before in expected.inputs.items()
        if found.inputs.get(name) != before
    ]
    lists = [
        list(_of_variant(entry, name, expected.variants.get(name), found.variants.get(name)))
        for name in dict.fromkeys((*expected.variants, *found.variants))
    ]
    changes += [change for each in lists for change in each]
    if changes and entry.tolerances is None and expected.versions != found.versions:
        changes = _under_other_versions(changes, expected, found, notes)
    kind = core()
    if found.cpu and kind not in expected.cpu:
        notes.append(f"Speed is not compared: the baseline has none of a core that is {kind}.")
    for kind, now in found.cpu.items():
        before_cpu = expected.cpu.get(kind)
        if before_cpu is not None and now > SLOWER * before_cpu:
            changes.append(Change("", "speed", before_cpu, now))
    return changes


def _of_variant(
    entry: Entry, name: str, before: ExpectedVariant | None, now: ExpectedVariant | None
) -> Iterator[Change]:
    if before is None or now is None:
        yield Change(name, "variant", *("missing" if of is None else "there"
                                        for of in (before, now)))  # fmt: skip
        return
    if before.digest != now.digest:
        yield Change(name, "digest", (before.digest or "none")[:12], (now.digest or "none")[:12])
    for count in ("events", "decisions"):
        if getattr(before, count) != getattr(now, count):
            yield Change(name, count, getattr(before, count), getattr(now, count))
    for metric in dict.fromkeys((*before.metrics, *now.metrics)):
        if metric not in now.metrics or metric not in before.metrics:
            yield Change(name, metric, *(of.metrics.get(metric, "missing")
                                         for of in (before, now)))  # fmt: skip
            continue
        was, is_ = before.metrics[metric], now.metrics[metric]
        tolerance = 0.0 if entry.tolerances is None else entry.tolerances.get(metric, math.inf)
        if not _near(was, is_, tolerance):
            yield Change(name, metric, was, is_)


def _near(was: float | None, now: float | None, tolerance: float) -> bool:
    if was is None or now is None:
        return was is now
    return was == now or abs(now - was) <= tolerance * abs(was)


def _under_other_versions(
    changes: list[Change], expected: ExpectedResult, found: ExpectedResult, notes: list[str]
) -> list[Change]:
    """Without what other versions of libraries may do to results; notes say what that was."""
    kept = [
        change
        for change in changes
        if not (change.quantity == "digest" or change.quantity.startswith("input "))
        and not _small(change)
    ]
    differ = ", ".join(
        f"{name} {expected.versions.get(name, 'none')}, here {now}"
        for name, now in found.versions.items()
        if expected.versions.get(name) != now
    )
    notes.append(
        f"Digests differ; the baseline was made with {differ}. So metrics and counts decide, "
        f"within {100 * OTHER_VERSIONS:g} %."
    )
    return kept


def _small(change: Change) -> bool:
    was, now = change.baseline, change.now
    if isinstance(was, str) or isinstance(now, str):
        return False
    return _near(was, now, OTHER_VERSIONS)


def to_json(outcome: EntryResult) -> Mapping[str, Any]:
    """For `--json`."""
    entry, speed = outcome.entry, outcome.speed
    return {
        "name": entry.name,
        "scenario": entry.scenario,
        "state": outcome.state,
        "why": outcome.why,
        "runs": outcome.runs,
        "changes": [
            {
                "variant": change.variant,
                "quantity": change.quantity,
                "baseline": change.baseline,
                "now": change.now,
                "share": change.share,
            }
            for change in outcome.changes
        ],
        "notes": outcome.notes,
        "speed": None
        if speed is None
        else {
            "core": core(),
            "baseline": None if entry.expected is None else entry.expected.cpu.get(core()),
            "now": speed.ratio,
            "lowest": speed.lowest,
            "highest": speed.highest,
            "laps": speed.laps,
        },
    }

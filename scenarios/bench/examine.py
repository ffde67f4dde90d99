"""Regression benchmarks: results of scenarios against accepted ones.

Simulations are deterministic, so any change counts, for better or worse, until it is accepted. Real
trainings are not, and are compared within tolerances.
"""

import json
import math
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from wattkeeper.policies.errors import EnvironmentLacks, InputError, WattkeeperError
from wattkeeper.scenarios.bench.baselines import Entry, ExpectedResult, ExpectedVariant
from wattkeeper.scenarios.bench.speed import SLOWER, Speed, core, measure
from wattkeeper.scenarios.bench.traces import NAME, generate_trace
from wattkeeper.scenarios.run.run import ScenarioResult, run
from wattkeeper.scenarios.spec.loading import LoadedScenario, load, nodes_path, shipped
from wattkeeper.scenarios.spec.sections.cluster import MixedCluster
from wattkeeper.scenarios.spec.sections.workload import SyntheticSource
from wattkeeper.scenarios.spec.yaml_document import ValuePath
from wattkeeper.traces.files.user_dirs import library_folder
from wattkeeper.traces.library import folder, store

DIGEST_LIBRARIES: Final = ("numpy", "pyarrow")
SYNTHETIC: Final = "synthetic"
"""Name of profiles that a scenario generates."""

OTHER_VERSIONS: Final = 0.01
"""Relative tolerance of metrics where digests differ under other versions of libraries."""

State = Literal["same", "changed", "failed", "new", "skipped"]


@dataclass(frozen=True)
class Change:
    """A difference from the baseline.

    Attributes:
        variant: The variant; empty: the whole entry.
        quantity: A metric, `digest`, `events`, `decisions`, `speed`, or `input NAME`.
        baseline: Accepted value; None: absent or undefined.
        now: Present value; None: absent or undefined.
    """

    variant: str
    quantity: str
    baseline: float | str | None
    now: float | str | None

    @property
    def share(self) -> float | None:
        """Relative growth; None where it is not defined."""
        if isinstance(self.baseline, str) or isinstance(self.now, str):
            return None
        if not self.baseline or self.now is None:
            return None
        return self.now / self.baseline - 1


@dataclass
class EntryResult:
    """The outcome of an entry.

    Attributes:
        entry: The entry.
        state: Its state.
        why: Reason if it was skipped or failed; else empty.
        changes: Differences from the baseline.
        notes: Remarks for the reader.
        result: Present results; None if it did not run.
        speed: Measured speed; None where it was not measured.
        runs: Variants times seeds.
    """

    entry: Entry
    state: State
    why: str = ""
    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    result: ExpectedResult | None = None
    speed: Speed | None = None
    runs: int = 0


def examine(entry: Entry, beside: Path, accept: bool = False) -> EntryResult:
    """Run an entry and compare it with its baseline.

    `beside` is the folder of the file of baselines. With `accept`, the results become the baseline.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="wattkeeper-bench-") as scratch:
            loaded = _load(entry, beside, Path(scratch))
            if absent := _find_absent(loaded):
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
        trace = scratch / NAME
        folder.write(generate_trace(entry.trace, beside), trace)
        settings.append(f"workload.trace={json.dumps(str(trace))}")
    own_file = os.path.normpath(beside / entry.scenario)  # its folder may not exist yet
    name = entry.scenario if entry.scenario in shipped() else own_file
    return load(name, settings, None if entry.seeds is None else range(1, entry.seeds + 1))


def _find_absent(loaded: LoadedScenario) -> str:
    """Message about a trace that is not in the library; empty if all are."""
    scenario = loaded.scenario
    names: list[tuple[object, ValuePath]] = [
        (getattr(scenario.workload, key), ("workload", key)) for key in scenario.workload.trace_keys
    ]
    for variant in scenario.variants:
        cluster = scenario.variants[variant].cluster or scenario.cluster
        if isinstance(cluster, MixedCluster):
            names.append((cluster.nodes, nodes_path(loaded.document, variant)))
    for name, place in names:
        if isinstance(name, str):
            try:
                store.locate(name, loaded.document.folder_of(place))
            except InputError:
                return f"trace {name!r} is not in the library ({library_folder()})"
    return ""


def _examine(entry: Entry, loaded: LoadedScenario, scratch: Path, accept: bool) -> EntryResult:
    laps, started = 0, False

    def progress(_done: int, _all: int, _at_work: str) -> None:
        nonlocal started
        started = True

    def lap() -> ScenarioResult:
        nonlocal laps
        laps += 1
        work = scratch / f"{laps}"
        try:
            return run(loaded, progress=progress, trainings=work, live=work if entry.live else None)
        except EnvironmentLacks as error:
            if started:  # what the environment lacks shows before the start
                raise RuntimeError(f"the run failed: {error}") from error
            raise

    done = lap()
    result = _summarise(entry, done)
    outcome = EntryResult(entry, "same", result=result, runs=len(done.results))
    expected = entry.expected
    _check_tolerances(entry, result)
    if expected is not None and (other := _find_other_input(entry, loaded, expected, result)):
        return EntryResult(entry, "skipped", other)
    if entry.tolerances is None:
        digests: set[str] = set()
        kind = core()
        before = None if expected is None else expected.cpu.get(kind)
        outcome.speed = measure(lambda: digests.add(_digest(lap())), before, accept)
        result.cpu[kind] = outcome.speed.ratio
        if digests != {_digest(done)}:
            outcome.changes.append(Change("", "digest", "the same in each run", "differs"))
    if expected is None:
        outcome.state = "new"
        return outcome
    outcome.changes += _list_changes(entry, expected, result, outcome.notes)
    if outcome.changes:
        outcome.state = "changed"
    return outcome


def _check_tolerances(entry: Entry, result: ExpectedResult) -> None:
    """Refuse tolerances that would never be used, as of a misspelt name.

    Raises:
        InputError: If no variant has or had a metric that has a tolerance.
    """
    sides = [side for side in (entry.expected, result) if side is not None]
    known = {
        name for side in sides for variant in side.variants.values() for name in variant.metrics
    }
    unknown = [name for name in entry.tolerances or () if name not in known]
    if unknown:
        raise InputError(f"tolerances: no variant has the metric {', '.join(unknown)}")


def _digest(done: ScenarioResult, variant: str | None = None) -> str:
    state = sha256()
    for result in done.results:
        if variant in (None, result.variant):
            state.update(result.digest.encode())
    return state.hexdigest()


def _summarise(entry: Entry, done: ScenarioResult) -> ExpectedResult:
    """The results in the form of a baseline."""
    exact = entry.tolerances is None
    variants = {}
    for name, about in done.summary["variants"].items():
        results = [result for result in done.results if result.variant == name]
        metrics = {metric: over_seeds["mean"] for metric, over_seeds in about["metrics"].items()}
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
        inputs={trace["trace"]: trace["content"] for trace in done.manifest["inputs"]},
        variants=variants,
        cpu={},
    )


def digest_versions() -> dict[str, str]:
    """Versions that digests may depend on."""
    python = ".".join(platform.python_version_tuple()[:2])
    libraries = {name: version(name) for name in DIGEST_LIBRARIES}
    return {"python": python, **libraries, "machine": platform.machine()}


def _find_other_input(
    entry: Entry, loaded: LoadedScenario, expected: ExpectedResult, result: ExpectedResult
) -> str:
    """Message about a trace of the library that differs from the baseline's; empty if none does."""
    generated = {NAME} if entry.trace is not None else set()
    if isinstance(getattr(loaded.scenario.workload, "profiles", None), SyntheticSource):
        generated.add(SYNTHETIC)
    for name, content in expected.inputs.items():
        if name not in generated and result.inputs.get(name, content) != content:
            return f"trace {name!r} of the library is not the one that the baseline was made with"
    return ""


def _list_changes(
    entry: Entry, expected: ExpectedResult, result: ExpectedResult, notes: list[str]
) -> list[Change]:
    changes = [
        Change("", f"input {name}", before[:12], result.inputs.get(name, "missing")[:12])
        for name, before in expected.inputs.items()
        if result.inputs.get(name) != before
    ]
    for name in dict.fromkeys((*expected.variants, *result.variants)):
        changes += _compare_variant(
            entry, name, expected.variants.get(name), result.variants.get(name)
        )
    if changes and entry.tolerances is None and expected.versions != result.versions:
        changes = _drop_version_effects(changes, expected, result, notes)
    kind = core()
    if result.cpu and kind not in expected.cpu:
        notes.append(f"Speed is not compared: the baseline has none of a core that is {kind}.")
    for kind, now in result.cpu.items():
        before_cpu = expected.cpu.get(kind)
        if before_cpu is not None and now > SLOWER * before_cpu:
            changes.append(Change("", "speed", before_cpu, now))
    return changes


def _compare_variant(
    entry: Entry, name: str, before: ExpectedVariant | None, now: ExpectedVariant | None
) -> Iterator[Change]:
    if before is None or now is None:
        yield Change(
            name, "variant", *("missing" if side is None else "there" for side in (before, now))
        )
        return
    if before.digest != now.digest:
        yield Change(name, "digest", (before.digest or "none")[:12], (now.digest or "none")[:12])
    for count in ("events", "decisions"):
        if getattr(before, count) != getattr(now, count):
            yield Change(name, count, getattr(before, count), getattr(now, count))
    for metric in dict.fromkeys((*before.metrics, *now.metrics)):
        if metric not in now.metrics or metric not in before.metrics:
            yield Change(
                name, metric, *(side.metrics.get(metric, "missing") for side in (before, now))
            )
            continue
        was, is_ = before.metrics[metric], now.metrics[metric]
        tolerance = 0.0 if entry.tolerances is None else entry.tolerances.get(metric, math.inf)
        if not _is_near(was, is_, tolerance):
            yield Change(name, metric, was, is_)


def _is_near(was: float | None, now: float | None, tolerance: float) -> bool:
    if was is None or now is None:
        return was is now
    return was == now or abs(now - was) <= tolerance * abs(was)


def _drop_version_effects(
    changes: list[Change], expected: ExpectedResult, result: ExpectedResult, notes: list[str]
) -> list[Change]:
    """Drop changes that other versions of libraries can cause, and note the versions."""
    remaining = [
        change
        for change in changes
        if not (change.quantity == "digest" or change.quantity.startswith("input "))
        and not _is_small(change)
    ]
    differ = ", ".join(
        f"{name} {expected.versions.get(name, 'none')}, here {now}"
        for name, now in result.versions.items()
        if expected.versions.get(name) != now
    )
    notes.append(
        f"Digests differ; the baseline was made with {differ}. So metrics and counts decide, "
        f"within {100 * OTHER_VERSIONS:g} %."
    )
    return remaining


def _is_small(change: Change) -> bool:
    was, now = change.baseline, change.now
    if isinstance(was, str) or isinstance(now, str):
        return False
    return _is_near(was, now, OTHER_VERSIONS)


def to_json(outcome: EntryResult) -> Mapping[str, Any]:
    """The outcome for `--json`."""
    entry, speed = outcome.entry, outcome.speed
    return {
        "name": entry.name,
        "scenario": entry.scenario,
        "state": outcome.state,
        "why": outcome.why,
        "runs": outcome.runs,
        "changes": [asdict(change) | {"share": change.share} for change in outcome.changes],
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

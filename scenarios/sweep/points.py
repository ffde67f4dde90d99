"""The points of a sweep, each a scenario of its own; all are checked before any runs.

`sweep:` is a mapping of axes, whose product is taken in the order of the file, or a list of such
mappings, taken one after the other; an item whose values are no lists is a point. So one form
serves products, lists, and any mixture.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from wattkeeper.policies.errors import InputError, PolicyError, Problem, ScenarioError
from wattkeeper.scenarios.inputs.run_inputs import ScenarioInputs
from wattkeeper.scenarios.kinds.kind import find_kind
from wattkeeper.scenarios.run.policy_checks import check_policies, warn_estimates
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import (
    LoadedScenario,
    check,
    describe_overridden,
    line_and_column,
)
from wattkeeper.scenarios.spec.wording import axis_text
from wattkeeper.scenarios.spec.yaml_document import ValuePath, YamlDocument
from wattkeeper.traces.library.folder import keep_traces

MAX_POINTS: Final = 9_999
MAX_RUNS: Final = 100_000

OF_THE_WHOLE: Final = {
    "name": "it names the results",
    "question": "it is asked of the whole sweep",
    "baseline": "points are compared by the same one",
    "policy_files": "points have the same ones; name a policy (policies.POINT)",
    "variants": "points have the same ones; name a key of one of them (variants.NAME....)",
    "seeds": "seeds are repetitions: say `seeds`, or --seeds",
    "sweep": "a sweep has no sweep inside",
}
"""Keys that cannot be an axis, and why."""


class SweepPoint(NamedTuple):
    """A point of a sweep.

    Attributes:
        id: Its number, from 0001 on.
        values: By the path of each axis.
        loaded: The scenario with those values.
    """

    id: str
    values: Mapping[str, Any]
    loaded: LoadedScenario

    def __str__(self) -> str:
        return ", ".join(f"{path}={axis_text(value)}" for path, value in self.values.items())


def expand_sweep(loaded: LoadedScenario) -> list[SweepPoint]:
    """The points of a scenario's sweep, checked against the schema.

    Raises:
        ScenarioError: If anything is wrong; all problems at once, each with the place of the value.
    """
    scenario, document = loaded
    assert scenario.sweep is not None
    items = (
        [(("sweep",), scenario.sweep)]
        if isinstance(scenario.sweep, dict)
        else [(("sweep", index), axes) for index, axes in enumerate(scenario.sweep)]
    )
    _check_axes(items, document)
    _check_settings(items[0][1], document)
    _check_size(items, loaded)
    plain = document.copy()
    plain.data.pop("sweep")
    points: list[SweepPoint] = []
    problems: dict[Problem, None] = {}
    known: dict[str, str] = {}
    for number, chosen in enumerate(_choose_values(items), 1):
        values = {path: value for path, (value, _) in chosen.items()}
        try:
            point = SweepPoint(f"{number:04}", values, _make_point(plain, document, chosen))
        except ScenarioError as error:
            problems |= dict.fromkeys(error.problems)
            continue
        resolved = point.loaded.scenario.model_dump_json()
        if resolved in known:
            what = f"sweep: the point {point} is the same as {known[resolved]}"
            problems[Problem(what, document.where(list(chosen.values())[-1][1]))] = None
            continue
        known[resolved] = str(point)
        points.append(point)
    if problems:
        raise ScenarioError(sorted(problems, key=line_and_column))
    return points


def describe_overridden_axes(points: Sequence[SweepPoint]) -> list[str]:
    """A line for each setting and axis from outside the file that some variants override."""
    lines = (line for point in points for line in describe_overridden(point.loaded.document))
    return list(dict.fromkeys(lines))


Item = tuple[ValuePath, Mapping[str, Any]]


def _axis_values(axis: Any) -> list[Any]:
    return list(axis) if isinstance(axis, list | tuple) else [axis]


def _choose_values(items: Sequence[Item]) -> Iterator[dict[str, tuple[Any, ValuePath]]]:
    """For each point: by path, the value and its place in the scenario."""
    for place, axes in items:
        columns = [
            [(path, value, (*place, path, index)) for index, value in enumerate(_axis_values(axis))]
            for path, axis in axes.items()
        ]
        for row in product(*columns):
            yield {path: (value, where) for path, value, where in row}


def _make_point(
    plain: YamlDocument, document: YamlDocument, chosen: Mapping[str, tuple[Any, ValuePath]]
) -> LoadedScenario:
    """The scenario with the values of one point."""
    own = plain.copy()
    for path, (value, place) in chosen.items():
        key = document.where_key(place[:-1])
        try:
            own.set_value(path, value, document.where(place), key)
        except ScenarioError as error:
            raise ScenarioError(
                [Problem(f"{path}: {p.message}", key) for p in error.problems]
            ) from None
        if plain.data["variants"].keys() - own.data["variants"].keys():
            what = f"sweep: {path}: points have the same variants; --set {path}=null removes it"
            raise ScenarioError(what, document.where(place))
    return check(own)


def _check_axes(items: Sequence[Item], document: YamlDocument) -> None:
    problems = []
    first = items[0][1]
    for place, axes in items:
        if set(axes) != set(first):
            what = f"sweep: items have the same axes; the first one has {', '.join(first)}"
            problems.append(Problem(what, document.where(place)))
        for path, axis in axes.items():
            where = document.where_key((*place, path))
            why = OF_THE_WHOLE.get(path) or OF_THE_WHOLE.get(
                path.partition(".")[0] if not path.startswith("variants.") else ""
            )
            if not all(path.split(".")):
                problems.append(Problem(f"sweep: write {path!r} as path.to.key", where))
            elif why:
                problems.append(Problem(f"sweep: {path} is no axis: {why}", where))
            inner = next((other for other in axes if path.startswith(f"{other}.")), None)
            if inner is not None:
                what = f"sweep: {path} is a part of {inner}, which is an axis, too"
                problems.append(Problem(what, where))
            if not _axis_values(axis):
                problems.append(Problem(f"sweep: {path} has no values", where))
    if problems:
        raise ScenarioError(problems)


def _check_settings(axes: Mapping[str, Any], document: YamlDocument) -> None:
    """Refuse settings from outside the file that axes hide; all items have the same axes."""
    problems = []
    for path, where in document.changed.items():
        changed = ".".join(map(str, path))
        hiding = next((axis for axis in axes if f"{changed}.".startswith(f"{axis}.")), None)
        if hiding is not None:
            what = (
                f"{changed}: it would change nothing, since every point of the sweep sets "
                f"{hiding}; sweep over other values (--sweep {hiding}=...), or not at all "
                "(--set sweep=null)"
            )
            problems.append(Problem(what, where))
    if problems:
        raise ScenarioError(problems)


def _check_size(items: Sequence[Item], loaded: LoadedScenario) -> None:
    points = sum(prod(len(_axis_values(axis)) for axis in axes.values()) for _, axes in items)
    runs = points * len(loaded.scenario.variants) * len(loaded.scenario.all_seeds)
    for number, most, what in ((points, MAX_POINTS, "points"), (runs, MAX_RUNS, "runs")):
        if number > most:
            place = loaded.document.where(("sweep",))
            raise ScenarioError(f"sweep: {number:,} {what}; at most {most:,}", place)


def read_point_inputs(
    points: Sequence[SweepPoint], tell: Callable[[str], None]
) -> Iterator[tuple[list[SweepPoint], ScenarioInputs]]:
    """Read the inputs of all points, once for those that read the same, and check their policies.

    A trace that several of them name is read once, too. `tell`: called at the end with each warning
    on them.

    Yields:
        Points that read the same, and their inputs.

    Raises:
        ScenarioError: At the end, if anything is wrong at any point; all problems at once.
    """
    with keep_traces():
        yield from _read_groups(points, tell)


def _read_groups(
    points: Sequence[SweepPoint], tell: Callable[[str], None]
) -> Iterator[tuple[list[SweepPoint], ScenarioInputs]]:
    """Read the inputs of all points; those with the same workload follow each other."""
    by_workload: dict[str, dict[str, list[SweepPoint]]] = {}
    for point in points:
        workload = point.loaded.scenario.workload.model_dump_json()
        alike = by_workload.setdefault(workload, {})
        alike.setdefault(_inputs_key(point.loaded), []).append(point)
    wrong: dict[Problem, list[SweepPoint]] = {}
    warnings: dict[str, None] = {}
    for same in (same for alike in by_workload.values() for same in alike.values()):
        try:
            inputs = read_inputs(same[0].loaded)
            if not find_kind(same[0].loaded.scenario.workload.kind).is_simulated:
                raise InputError(
                    "sweep: a search (workload.kind) trains for real; run it once for each value "
                    "(--set), each with its own --out"
                )
        except InputError as error:
            for problem in error.problems:
                wrong.setdefault(problem, []).extend(same)
            continue
        for point in same:
            try:
                check_policies(point.loaded, inputs)
            except (InputError, PolicyError) as error:
                for problem in error.problems:
                    wrong.setdefault(problem, []).append(point)
        if not wrong:
            warnings |= dict.fromkeys(warn_estimates(point.loaded, inputs) for point in same)
            yield same, inputs
    if wrong:
        raise ScenarioError(
            [_name_points(problem, own, len(points)) for problem, own in wrong.items()]
        )
    for warning in filter(None, warnings):
        tell(warning)


def _inputs_key(loaded: LoadedScenario) -> str:
    """The parts of a scenario that `read_inputs` depends on, as text."""
    scenario = loaded.scenario
    own = {name: {"cluster", "workload"} for name in scenario.variants}
    keys = dict.fromkeys(("workload", "cluster", "latencies", "live", "baseline"), True)
    parts = scenario.model_dump_json(include={**keys, "variants": own})
    return parts + repr([variant.occupancy for variant in loaded.variants.values()])


def _name_points(problem: Problem, points: Sequence[SweepPoint], total: int) -> Problem:
    """The problem with the points that have it, unless all have."""
    if len(points) == total:
        return problem
    more = f", and at {len(points) - 1} more points" if len(points) > 1 else ""
    return Problem(f"{problem.message} (at {points[0]}{more})", problem.where)

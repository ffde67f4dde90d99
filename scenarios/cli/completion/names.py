"""Names that shells complete: scenarios, traces, policies and variants."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from wattkeeper.policies.errors import WattkeeperError

Completions = list[CompletionItem[str]]


def complete_scenarios(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> Completions:
    """Names of shipped scenarios; files where none begins so."""
    from wattkeeper.scenarios.spec.loading import shipped

    return _select(shipped(), incomplete) or [CompletionItem(incomplete, type="file")]


def complete_traces(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> Completions:
    """Names of traces in the library; files where none begins so."""
    return _select(_name_traces(), incomplete) or [CompletionItem(incomplete, type="file")]


def complete_variants(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> Completions:
    """Variants of the results in the folder that the command names."""
    from wattkeeper.scenarios.analysis.study import read

    folder = _read_argument(context, "folder")
    try:
        study = None if folder is None else read(Path(folder), check=False)
    except WattkeeperError:
        study = None
    return _select(() if study is None else study.summary["variants"], incomplete)


def complete_settings(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> Completions:
    """Keys of policies by variant, the trace and the baseline; after `=`, their values."""
    key, equals, _ = incomplete.partition("=")
    variants = _name_variants(_read_argument(context, "scenario"))
    if not equals:
        return _select((f"{key}=" for key in _name_keys(variants)), incomplete)
    return _select((f"{key}={value}" for value in _name_values(key, variants)), incomplete)


def _read_argument(context: click.Context, name: str) -> str | None:
    """The first argument of a command; click does not name it before an option without a value."""
    given = context.params.get(name)
    return str(given) if given is not None else next(iter(context.args), None)


def _name_keys(variants: Iterable[str]) -> Iterator[str]:
    from wattkeeper.policies.registry import POINTS

    yield from ("baseline", "workload.trace")
    for variant in variants:
        yield from (f"variants.{variant}.policies.{point}" for point in POINTS)


def _name_values(key: str, variants: Iterable[str]) -> Iterable[str]:
    """Values of a key of `_name_keys`."""
    from wattkeeper.policies.registry import POINTS, policies

    if key == "baseline":
        return variants
    if key == "workload.trace":
        return _name_traces()
    head, _, last = key.removesuffix(".kind").rpartition(".")
    return policies(last) if last in POINTS and head.endswith(".policies") else ()


def _name_traces() -> tuple[str, ...]:
    from wattkeeper.traces.library import store

    try:
        return store.names()
    except WattkeeperError:
        return ()


def _name_variants(scenario: str | None) -> tuple[str, ...]:
    """The variants of a scenario, by its name or file; none if it cannot be read."""
    from wattkeeper.scenarios.spec.loading import load

    try:
        return () if scenario is None else tuple(load(scenario).scenario.variants)
    except WattkeeperError:
        return ()


def _select(values: Iterable[str], incomplete: str) -> Completions:
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]

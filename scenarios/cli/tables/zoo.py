"""The zoo's models on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from wattkeeper.scenarios.cli.tables.document import print_block
from wattkeeper.scenarios.document.blocks import Paragraph, text_table
from wattkeeper.scenarios.spec.wording import count, unlisted

if TYPE_CHECKING:
    from rich.console import Console

    from wattkeeper.live.zoo.parents import ParentMatch
    from wattkeeper.live.zoo.rows import ZooModel
    from wattkeeper.live.zoo.zoo import Zoo
    from wattkeeper.scenarios.zoo.warm_start import WarmStartResult

ABOUT: Final = ("model", "name", "task", "data set", "accuracy")

MOST_ROWS: Final = 20
"""Parents that are listed; --json has all."""


def print_models(console: Console, zoo: Zoo, models: Sequence[ZooModel]) -> None:
    """Print all models, and the size of the zoo."""
    rows = [
        (
            *_about(model),
            "" if model.parent is None else f"{model.parent}",
            size(model.bytes),
            f"{model.uses}",
        )
        for model in models
    ]
    heads = (*ABOUT, "parent", "size", "uses")
    print_block(console, text_table(heads, rows, f"{count(len(models), 'model')} of {zoo.path}"))
    bound = zoo.capacity_bytes
    capacity = ", unbounded" if bound is None else f" of {size(bound)}"
    meaning = (
        f"{size(zoo.bytes)}{capacity}, kept by {zoo.retain}. size: of a model's tensors; what "
        "several models share is stored once."
    )
    print_block(console, Paragraph("note", (meaning,)))


def print_matches(console: Console, title: str, matches: Sequence[ParentMatch], many: int) -> None:
    """Print the most similar ones of `many` models."""
    rows = [
        (
            *_about(match.model),
            f"{match.score:.4g}",
            "-" if match.over_own is None else f"{match.over_own:.4g}",
            match.relation.kept,
            f"{100 * match.saving:.0f} %",
        )
        for match in matches
    ]
    heads = (*ABOUT, "score", "over own", "function", "may save")
    table = text_table(heads, rows, title)
    print_block(console, table._replace(caption=unlisted(many, len(matches))))


def describe_start(start: WarmStartResult) -> Iterator[str]:
    """What a model that was filled has of its parent, in a few lines."""
    match, report, tried = start
    model = match.model
    if tried:
        each = (f"model {one.model_id} ({one.name}) {metric:g}" for one, metric in tried)
        yield f"Tried: {', '.join(each)}"
    yield f"Parent: model {model.model_id} ({model.name}), accuracy {model.accuracy:g}"
    statuses = Counter(item.status for item in report.tensors if item.trained)
    counts = ", ".join(f"{number} {status}" for status, number in statuses.items())
    yield f"Filled: {100 * report.coverage:.1f} % of the parameters ({counts} tensors)"
    yield from report.verdicts()
    saving = 100 * match.saving
    yield f"Expected: about {saving:.0f} % less training than from scratch (fit to small networks)"


def _about(model: ZooModel) -> tuple[str, ...]:
    return (f"{model.model_id}", model.name, model.task, model.dataset, f"{model.accuracy:g}")


def size(count: int) -> str:
    """Bytes for a reader."""
    for prefix, unit in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= unit:
            return f"{count / unit:.1f} {prefix}B"
    return f"{count} B"

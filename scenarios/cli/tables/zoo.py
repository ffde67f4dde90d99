"""The zoo's models on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from wattkeeper.scenarios.spec.wording import count, unlisted

if TYPE_CHECKING:
    from rich.console import Console

    from wattkeeper.live.zoo.parents import ParentMatch
    from wattkeeper.live.zoo.rows import ZooModel
    from wattkeeper.live.zoo.zoo import Zoo

MOST_ROWS = 20
"""Parents that are listed; --json has all."""


def print_models(console: Console, zoo: Zoo, models: Sequence[ZooModel]) -> None:
    """Print all models, and the size of the zoo."""
    table = Table(title=f"{count(len(models), 'model')} of {zoo.path}")
    for title in ("model", "name", "task", "data set"):
        table.add_column(title, justify="right" if title == "model" else "left")
    for title in ("accuracy", "parent", "size", "uses"):
        table.add_column(title, justify="right", no_wrap=True)
    for model in models:
        parent = "" if model.parent is None else f"{model.parent}"
        table.add_row(*_about(model), parent, size(model.bytes), f"{model.uses}")
    console.print(table)
    bound = zoo.capacity_bytes
    capacity = ", unbounded" if bound is None else f" of {size(bound)}"
    console.print(
        f"{size(zoo.bytes)}{capacity}, kept by {zoo.retain}. size: of a model's tensors; what "
        "several models share is stored once.",
        style="dim",
    )


def print_matches(console: Console, title: str, matches: Sequence[ParentMatch], many: int) -> None:
    """Print the most similar ones of `many` models."""
    table = Table(title=title)
    for title in ("model", "name", "task", "data set"):
        table.add_column(title, justify="right" if title == "model" else "left")
    for title in ("accuracy", "score", "over own"):
        table.add_column(title, justify="right", no_wrap=True)
    for match in matches:
        over_own = "-" if match.over_own is None else f"{match.over_own:.4g}"
        table.add_row(*_about(match.model), f"{match.score:.4g}", over_own)
    console.print(table)
    if rest := unlisted(many, len(matches)):
        console.print(rest, style="dim")


def _about(model: ZooModel) -> tuple[str, ...]:
    return (f"{model.model_id}", model.name, model.task, model.dataset, f"{model.accuracy:g}")


def size(count: int) -> str:
    """Bytes for a reader."""
    for prefix, unit in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= unit:
            return f"{count / unit:.1f} {prefix}B"
    return f"{count} B"

"""Options of all commands that import a log, and what they print about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.options import PATH, number_type

if TYPE_CHECKING:
    from wattkeeper.traces.library.store import Added

_SECONDS = number_type("a number of seconds > 0, without unit", lambda n: 0 < n <= 1e15)

_OPTIONS: Final = (
    click.option(
        "--map",
        "maps",
        multiple=True,
        metavar="CANONICAL=COLUMN[:UNIT]",
        help="For csv: a column of the file, and the unit of its times: ms, s, min, h or d [s]; "
        "may be repeated.",
    ),
    click.option("--skip-bad", is_flag=True, help="Leave out malformed rows, and count them."),
    click.option(
        "--columns",
        metavar="NAME,...",
        help="Columns of files without header line, in their order.",
    ),
    click.option(
        "--default-estimate",
        type=_SECONDS,
        metavar="S",
        help="Estimated run time of jobs without one, s.",
    ),
    click.option(
        "--partitions",
        type=PATH,
        metavar="FILE",
        help="Limits and GPU types by partition: sinfo --format '%R|%l|%G', or a CSV file.",
    ),
    click.option("--from", "since", metavar="T", help="First submission that is kept."),
    click.option("--until", metavar="T", help="First submission that is not kept any more."),
    click.option(
        "--zone", help="Time zone of the log's dates, as Europe/Berlin, if they have no offset."
    ),
    click.option(
        "--power",
        metavar="TRACE",
        help="Power log, imported before as power-log: what jobs drew, by node, GPU and time.",
    ),
)


def import_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an import: it gets them as `options`, but for `skip_bad`."""

    @wraps(function)
    def gather_options(
        *,
        maps: tuple[str, ...],
        columns: str | None,
        default_estimate: float | None,
        partitions: Path | None,
        since: str | None,
        until: str | None,
        zone: str | None,
        power: str | None,
        **others: Any,
    ) -> None:
        from wattkeeper.traces.readers.base import ImportOptions

        names = tuple(name.strip() for name in columns.split(",")) if columns else ()
        mapping = _parse_mapping(maps)
        options = ImportOptions(
            mapping, names, default_estimate, partitions, since, until, zone, power
        )
        function(options=options, **others)

    for add_option in reversed(_OPTIONS):
        add_option(gather_options)
    return gather_options


def _parse_mapping(maps: tuple[str, ...]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for text in maps:
        canonical, _, column = text.partition("=")
        if not canonical or not column:
            reason = f"found {text!r}; allowed: CANONICAL=COLUMN or CANONICAL=COLUMN:UNIT"
            raise click.BadParameter(reason, param_hint="--map")
        if canonical in mapping:
            raise click.BadParameter(f"{canonical} is mapped twice", param_hint="--map")
        mapping[canonical] = column
    return mapping


def print_import(added: Added, where: str) -> None:
    """Print what an import kept and left out, and where it is."""
    from wattkeeper.traces.library import store

    for table, rows in added.rows.items():
        terminal.write(f"{rows:8} {table}")
    for line in store.list_left_out(added.quality):
        terminal.write(line)
    for note in added.notes:
        terminal.write(f"Note: {note}")
    if warning := store.warn_left_out(added.quality):
        terminal.write(warning, err=True)
    if warning := added.outlived.warn():
        terminal.write(warning, err=True)
    terminal.write(f"{added.name} ({added.kind}, {added.origin}): {where}")

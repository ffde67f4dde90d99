"""Tables with a bar of parts for each variant, and their figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import Unit, choose_unit
from wattkeeper.scenarios.document.blocks import Cell, Head, Small, StackedBar, Table, TableRow
from wattkeeper.scenarios.document.words import label_row

PartValues = Mapping[str, float]
"""The parts of a variant, by name, in the order of the bar."""


class BarPart(NamedTuple):
    """A part of the bars.

    Attributes:
        label: Its name.
        colour: Variable of the style sheet.
    """

    label: str
    colour: str


def bars_table(
    quantity: str,
    values: Mapping[str, PartValues],
    parts: Mapping[str, BarPart],
    units: Sequence[Unit],
    summary: Json,
    describe: Callable[[str, Json], str] = lambda _, __: "",
) -> Table:
    """A row for each variant: a bar of its parts, and their figures.

    Args:
        quantity: What the bars are of.
        values: The parts of each variant.
        parts: Labels and colours; a part that is 0 in all variants has no column.
        units: Units of the quantity.
        summary: Of the study.
        describe: What stands below the name of a variant.
    """
    largest = max(sum(each.values()) for each in values.values())
    unit, size = choose_unit([largest], units)
    shown = {name: part for name, part in parts.items() if any(v[name] for v in values.values())}
    rows = []
    for variant, own in values.items():
        bar = StackedBar(
            [(parts[name].label, part, parts[name].colour) for name, part in own.items()], largest
        )
        figures = [
            Cell((format_figure(own[name] / size),), "" if unit == "%" else _share(own[name], own))
            for name in shown
        ]
        name, *remarks = label_row(variant, summary)
        below = describe(variant, summary)
        label = (name, *[Small(below)] * bool(below), *remarks)
        rows.append(TableRow(label, [Cell((), mark=bar), *figures]))
    heads = [Head("variant"), Head(f"{quantity}, {unit}: 0 to {format_figure(largest / size)}")]
    heads += [Head(f"{part.label}, {unit}", part.colour) for part in shown.values()]
    return Table(heads, rows)


def format_figure(value: float) -> str:
    """A figure with as many digits as are needed."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _share(part: float, values: PartValues) -> str:
    whole = sum(values.values())
    return f"{100 * part / whole:.1f} %" if whole else "-"

"""Tables with a bar of parts for each variant, and their figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import Unit, choose_unit
from wattkeeper.scenarios.report.markup import build_table, tag
from wattkeeper.scenarios.report.phrases import name_baseline, variant_label

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


def build_bars(
    quantity: str,
    values: Mapping[str, PartValues],
    parts: Mapping[str, BarPart],
    units: Sequence[Unit],
    summary: Json,
    describe: Callable[[str, Json], Element | None] = lambda _, __: None,
) -> Element:
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
    heads = {
        name: f"{part.label}, {unit}"
        for name, part in parts.items()
        if any(each[name] for each in values.values())
    }
    rows = []
    for variant, of_variant in values.items():
        figures = [
            tag(
                "td",
                tag("b", format_figure(of_variant[name] / size)),
                None
                if unit == "%"
                else tag("span", _share(of_variant[name], of_variant), class_="change"),
                data_label=head,
            )
            for name, head in heads.items()
        ]
        label = tag(
            "th",
            variant_label(variant, summary),
            describe(variant, summary),
            name_baseline(variant, summary),
            scope="row",
        )
        bar = tag("td", _bar(of_variant, largest, parts), style="width:34%", data_label=quantity)
        rows.append(tag("tr", label, bar, *figures))
    table = build_table(("variant", f"{quantity}, {unit}", *heads.values()), rows, class_="cards")
    _, of_bars, *of_figures = table.findall("thead/tr/th")
    of_bars.append(_scale(format_figure(largest / size)))
    for name, head in zip(heads, of_figures, strict=True):
        key = _key(parts[name])
        key.tail, head.text = head.text, None
        head.append(key)
    return tag("div", table, class_="scroll")


def _bar(values: PartValues, largest: float, parts: Mapping[str, BarPart]) -> Element:
    """The parts side by side; a bar of the full width is the largest of all variants."""
    text = ", ".join(
        f"{parts[name].label} {_share(part, values)}" for name, part in values.items() if part
    )
    style = "display:block;width:100%;min-width:6rem;height:1.1rem;justify-self:stretch"
    bar = tag(
        "svg",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        style=style,
        aria_label=text or "nothing",
    )
    begin = 0.0
    for name, part in values.items():
        width = 100 * part / largest if largest else 0.0
        if part:
            bar.append(
                tag(
                    "rect",
                    x=f"{begin:.3f}",
                    y=0,
                    width=f"{width:.3f}",
                    height=10,
                    style=f"fill:var({parts[name].colour})",
                )
            )
        begin += width
    return bar


def _scale(most: str) -> Element:
    """The axis of the bars: its begin and its end."""
    style = "display:flex;justify-content:space-between;border-bottom:1px solid var(--soft)"
    return tag("span", tag("span", "0"), tag("span", most), style=f"{style};font-weight:400")


def _key(part: BarPart) -> Element:
    """The colour of a part."""
    box = tag("rect", width=10, height=10, style=f"fill:var({part.colour})")
    return tag(
        "svg",
        box,
        viewBox="0 0 10 10",
        style="width:.7rem;height:.7rem;margin-right:.3rem",
        aria_hidden="true",
    )


def format_figure(value: float) -> str:
    """A figure with as many digits as are needed."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _share(part: float, values: PartValues) -> str:
    whole = sum(values.values())
    return f"{100 * part / whole:.1f} %" if whole else "-"

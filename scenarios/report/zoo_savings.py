"""Savings of a real architecture search with a zoo: in sentences and as a table."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.savings import is_noise, savings_labels, savings_note
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.phrases import (
    Words,
    describe_change,
    join_list,
    typeset_minus,
    variant_label,
)
from wattkeeper.scenarios.spec.wording import percent


def write_sentences(summary: Json) -> Iterator[Element]:
    """The savings of each variant."""
    for name, saved in summary["saved"].items():
        clear: list[list[Words]] = []
        unclear: list[list[Words]] = []
        for key, noun in savings_labels(summary).items():
            ratios = {"ratio": 1 - saved[key]["mean"], "ci95": None}
            if saved[key]["ci95"]:
                ratios["ci95"] = [1 - bound for bound in reversed(saved[key]["ci95"])]
            text, interval = describe_change("energy_j", ratios)
            if is_noise(saved[key]):
                unclear.append([noun, f" ({text}", interval, ")"])
            else:
                clear.append([tag("strong", text), f" {noun}", interval])
        points = saved["accuracy_points"]
        words = join_list(clear)
        if unclear:
            words += ["; " if clear else "", "no difference beyond noise in ", *join_list(unclear)]
        accuracy = f"; final accuracy {_points(points['mean'])} points"
        bounds = points["ci95"]
        interval = tag("small", f" [{', '.join(map(_points, bounds))}]") if bounds else None
        yield tag("li", variant_label(name, summary), ": ", *words, accuracy, interval, ".")


def _points(value: float) -> str:
    return typeset_minus(f"{value:+.2f}")


def _share(value: float) -> str:
    return typeset_minus(percent(value))


def build_table(summary: Json) -> Element:
    """The savings of each variant with their intervals."""
    heads = savings_labels(summary) | {"accuracy_points": "final accuracy"}
    rows = []
    for name, saved in summary["saved"].items():
        cells = [tag("th", variant_label(name, summary), scope="row")]
        for key, title in heads.items():
            accuracy = key == "accuracy_points"
            to_text, unit = (_points, "points") if accuracy else (_share, "% saved")
            value, interval = to_text(saved[key]["mean"]), saved[key]["ci95"]
            bounds = f"[{', '.join(map(to_text, interval))}]" if interval else ""
            cells.append(
                tag(
                    "td",
                    tag("b", f"{value} {unit}"),
                    tag("span", bounds, class_="change"),
                    data_label=title,
                )
            )
        rows.append(tag("tr", *cells))
    titles = ("variant", *heads.values())
    return markup.build_table(titles, rows, savings_note(summary), class_="cards")

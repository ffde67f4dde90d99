"""What a search that trained for real saved: in words and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.savings import is_noise, savings_labels, savings_note
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.phrases import Words, change, listed, minus, variant
from wattkeeper.scenarios.spec.wording import percent


def sentences(summary: Json) -> Iterator[Element]:
    """What each variant saved, in words."""
    for name, saved in summary["saved"].items():
        clear: list[list[Words]] = []
        unclear: list[list[Words]] = []
        for key, noun in savings_labels(summary).items():
            ratios = {"ratio": 1 - saved[key]["mean"], "ci95": None}
            if saved[key]["ci95"]:
                ratios["ci95"] = [1 - bound for bound in reversed(saved[key]["ci95"])]
            changed, interval = change("energy_j", ratios)
            if is_noise(saved[key]):
                unclear.append([noun, f" ({changed}", interval, ")"])
            else:
                clear.append([tag("strong", changed), f" {noun}", interval])
        points = saved["accuracy_points"]
        words = listed(clear)
        if unclear:
            words += ["; " if clear else "", "no difference beyond noise in ", *listed(unclear)]
        accuracy = f"; final accuracy {_points(points['mean'])} points"
        bounds = points["ci95"]
        interval = tag("small", f" [{', '.join(map(_points, bounds))}]") if bounds else None
        yield tag("li", variant(name, summary), ": ", *words, accuracy, interval, ".")


def _points(value: float) -> str:
    return minus(f"{value:+.2f}")


def _share(value: float) -> str:
    return minus(percent(value))


def table(summary: Json) -> Element:
    """What each variant saved, with its interval."""
    heads = savings_labels(summary) | {"accuracy_points": "final accuracy"}
    rows = []
    for name, saved in summary["saved"].items():
        cells = [tag("th", variant(name, summary), scope="row")]
        for key, title in heads.items():
            points = key == "accuracy_points"
            number, unit = (_points, "points") if points else (_share, "% saved")
            value, interval = number(saved[key]["mean"]), saved[key]["ci95"]
            shown = f"[{', '.join(map(number, interval))}]" if interval else ""
            cells.append(tag("td", tag("b", f"{value} {unit}"),
                             tag("span", shown, class_="change"), data_label=title))  # fmt: skip
        rows.append(tag("tr", *cells))
    titles = [tag("th", title, scope="col") for title in ("variant", *heads.values())]
    return tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *rows),
               tag("caption", savings_note(summary)), class_="cards")  # fmt: skip

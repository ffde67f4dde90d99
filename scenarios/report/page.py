"""The page of a study: the answer first, then what it rests on."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Any
from xml.etree.ElementTree import Element

from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import cautions, notes, oracle_variants
from wattkeeper.scenarios.report import about, headline, tables
from wattkeeper.scenarios.report.charts.chart import Chart
from wattkeeper.scenarios.report.charts.study_charts import charts
from wattkeeper.scenarios.report.markup import embedded, html, tag
from wattkeeper.scenarios.report.phrases import swatch

SMALL = ("pareto", "regret", "jct", "delay")
"""Charts that fit side by side."""

LIBRARY = "vendor/echarts.common.min.js"


def page(study: Study) -> str:
    """The page of a study, with all that it needs inside.

    The same results give the same page. It asks for nothing from a network, and its content
    security policy forbids that.
    """
    manifest, summary = study.manifest, study.summary
    drawn = list(charts(study))
    broken_down = tables.parts(summary)
    oracles = oracle_variants(manifest["scenario"])
    body = [
        header(manifest["scenario"]["name"]),
        tag("h1", manifest["scenario"]["question"] or manifest["scenario"]["name"]),
        tag("ul", *headline.sentences(summary, oracles), class_="answer"),
        *(tag("p", line, class_="note")
          for line in headline.remarks(len(manifest["seeds"]), summary)),
        *(tag("p", line, class_="caution") for line in cautions(manifest, summary)),
        about.basis(manifest),
        chips(list(summary["variants"])),
        tag("section", tag("h2", "Variants"), tables.comparison(summary),
            *(tag("p", line, class_="note") for line in tables.verdicts([summary])),
            *(tag("p", line, class_="note") for line in notes_of(study)), id="variants"),
        *figures(drawn),
    ]  # fmt: skip
    if broken_down is not None:
        title, table = broken_down
        body.append(
            tag("section", tag("h2", f"Differences by {title}"), table,
                tag("p", "Change against the baseline, and its 95 % interval where there are "
                    "several seeds; by metric.", class_="note"), id="parts")
        )  # fmt: skip
    body.append(tag("section", tag("h2", "To repeat it"), about.details(manifest), id="details"))
    return whole(manifest["scenario"]["name"], body, list(summary["variants"]), drawn)


def notes_of(study: Study) -> list[str]:
    """What the metrics mean."""
    return [] if "saved" in study.summary else list(notes(study.manifest, study.summary))


def header(name: str) -> Element:
    """The line above all."""
    button = tag("button", "Theme", aria_label="Light or dark theme", type="button", id="theme")
    return tag("header", tag("span", tag("b", name), " · wattkeeper"), button)


def chips(variants: Sequence[str]) -> Element | None:
    """What shows and hides variants in all charts."""
    if len(variants) < 2:
        return None
    buttons = [
        tag("button", swatch(at), name, type="button", data_variant=at, aria_pressed="true")
        for at, name in enumerate(variants)
    ]
    return tag("nav", *buttons, class_="chips", aria_label="Variants in the charts")


def figures(drawn: Sequence[Chart]) -> list[Element]:
    """The charts; small ones side by side."""
    made: list[Element] = []
    small: list[Element] = []
    for chart in drawn:
        choice = None
        if "views" in chart.drawn:
            options = [tag("option", name, value=name) for name in chart.drawn["views"]]
            choice = tag("select", *options, id=f"view-{chart.id}", aria_label=chart.title)
        box = tag("div", class_="chart", id=f"chart-{chart.id}", role="img",
                  aria_label=chart.title)  # fmt: skip
        figure = tag("figure", tag("h2", chart.title), choice, box,
                     tag("figcaption", chart.caption), id=chart.id)  # fmt: skip
        (small if chart.id in SMALL else made).append(figure)
    return [tag("div", *small, class_="pair"), *made]


def whole(title: str, body: Sequence[Element | None], variants: list[str],
          drawn: Sequence[Chart]) -> str:  # fmt: skip
    """The file: what is seen, what is drawn, and what draws it."""
    data: dict[str, Any] = {
        "variants": variants,
        "charts": [{"id": chart.id} | chart.drawn for chart in drawn],
    }
    library, script = _part(LIBRARY), _part("report.js")
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
        f"form-action 'none'; script-src {_allowed(library)} {_allowed(script)}"
    )
    return Template(_part("report.html")).substitute(
        policy=policy,
        title=escape(title),
        style=_part("report.css"),
        body="\n".join(html(element) for element in body if element is not None),
        data=embedded(data),
        library=library,
        script=script,
    )


@cache
def _part(name: str) -> str:
    return files("wattkeeper.scenarios.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _allowed(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"

"""A document as a page: one HTML file that loads nothing from a network."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final
from xml.etree.ElementTree import Element

from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.charts.chart import Chart
from wattkeeper.scenarios.document.blocks import Chapter, Document, Figure
from wattkeeper.scenarios.document.comparisons.sweep import read_sweep_document
from wattkeeper.scenarios.document.study import describe_study
from wattkeeper.scenarios.report import html
from wattkeeper.scenarios.report.markup import tag, to_html, to_script_json

SMALL: Final = ("pareto", "regret", "jct", "delay")
"""Charts that fit side by side."""

LIBRARY: Final = "vendor/echarts.common.min.js"


def render_page(study: Study) -> str:
    """The page of a study; the same results give the same page."""
    return render_document(describe_study(study))


def render_sweep_page(folder: Path) -> str:
    """The page of the sweep in a folder.

    Raises:
        InputError: If it holds no sweep, or results of a finished point are broken.
    """
    return render_document(read_sweep_document(folder))


def render_document(document: Document) -> str:
    """The page of a document as one HTML file.

    It loads nothing from a network, and its content security policy forbids that.
    """
    charts = [
        block.chart
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Figure)
    ]
    body = [header(document.name), tag("h1", document.title)]
    for section in document.sections:
        body += _render_section(section, document.variants)
    return assemble_page(document.name, body, list(document.variants), charts)


def _render_section(section: Chapter, variants: Sequence[str]) -> Iterator[Element]:
    """The elements of a section; buttons that choose variants stand above charts."""
    charts = [block.chart for block in section.blocks if isinstance(block, Figure)]
    if not charts:
        if section.blocks:
            yield html.section(section)
        return
    if (chips := variant_chips(variants)) is not None:
        yield chips
    yield from figures(charts)


def header(name: str) -> Element:
    """The top line of a page."""
    button = tag("button", "Theme", aria_label="Light or dark theme", type="button", id="theme")
    return tag("header", tag("span", tag("b", name), " · wattkeeper"), button)


def variant_chips(variants: Sequence[str]) -> Element | None:
    """Buttons that show and hide variants in all charts."""
    if len(variants) < 2:
        return None
    buttons = [
        tag(
            "button",
            html.swatch(index),
            name,
            type="button",
            data_variant=index,
            aria_pressed="true",
        )
        for index, name in enumerate(variants)
    ]
    return tag("nav", *buttons, class_="chips", aria_label="Variants in the charts")


def figures(charts: Sequence[Chart]) -> list[Element]:
    """The charts; small ones side by side."""
    wide: list[Element] = []
    small: list[Element] = []
    for chart in charts:
        choice = None
        if "views" in chart.data:
            options = [tag("option", name, value=name) for name in chart.data["views"]]
            choice = tag("select", *options, id=f"view-{chart.id}", aria_label=chart.title)
        box = tag("div", class_="chart", id=f"chart-{chart.id}", role="img", aria_label=chart.title)
        figure = tag(
            "figure",
            tag("h2", chart.title),
            choice,
            box,
            tag("figcaption", chart.caption),
            id=chart.id,
        )
        (small if chart.id in SMALL else wide).append(figure)
    return [tag("div", *small, class_="pair"), *wide]


def assemble_page(
    title: str, body: Sequence[Element], variants: list[str], charts: Sequence[Chart]
) -> str:
    """The HTML file: body, data of the charts, style and scripts."""
    names = [*variants, *(name for chart in charts for name in chart.names)]
    data = {"variants": names, "charts": [{"id": chart.id, **chart.data} for chart in charts]}
    library, script = _read_asset(LIBRARY), _read_asset("report.js")
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
        f"form-action 'none'; script-src {_csp_hash(library)} {_csp_hash(script)}"
    )
    return Template(_read_asset("report.html")).substitute(
        policy=policy,
        title=escape(title),
        style=_read_asset("report.css"),
        body="\n".join(to_html(element) for element in body),
        data=to_script_json(data),
        library=library,
        script=script,
    )


@cache
def _read_asset(name: str) -> str:
    return files("wattkeeper.scenarios.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _csp_hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"

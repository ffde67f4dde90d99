"""The page of a study: its answer in sentences, then charts and tables."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.learning.window import LearningWindow, read_learning_window
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.randomness import may_draw
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.texts import waits
from wattkeeper.scenarios.analysis.texts.losses import only_elastic
from wattkeeper.scenarios.analysis.times.deadlines import (
    HEADS,
    deadline_notes,
    deadline_rows,
    deadline_title,
)
from wattkeeper.scenarios.analysis.vocabulary import (
    cautions,
    describe_profiles,
    notes,
    oracle_variants,
)
from wattkeeper.scenarios.report import about, headline, markup, tables
from wattkeeper.scenarios.report.amounts import read_bill
from wattkeeper.scenarios.report.charts.chart import Chart
from wattkeeper.scenarios.report.charts.lost_work_bars import losses_section
from wattkeeper.scenarios.report.charts.study_charts import draw_study
from wattkeeper.scenarios.report.elastic.bars import elastic_section
from wattkeeper.scenarios.report.elastic.sentences import compare_goodput
from wattkeeper.scenarios.report.energy_table import energy_section
from wattkeeper.scenarios.report.league_section import league_section
from wattkeeper.scenarios.report.markup import build_labelled_table, tag, to_html, to_script_json
from wattkeeper.scenarios.report.phrases import swatch, typeset_minus, variant_label
from wattkeeper.scenarios.report.times_section import times_section
from wattkeeper.scenarios.report.usage_section import usage_section

NAMES = ("variant", "against")
"""Columns without numbers."""

SMALL = ("pareto", "regret", "jct", "delay")
"""Charts that fit side by side."""

FIRST_SENTENCES = 2
"""Sentences on the record that stand on the first screen; the others stand below."""

LIBRARY = "vendor/echarts.common.min.js"


def render_page(study: Study) -> str:
    """The page of a study as one HTML file.

    The same results give the same page. It loads nothing from a network, and its content security
    policy forbids that.
    """
    manifest, summary = study.manifest, study.summary
    elastic = only_elastic(manifest["scenario"])
    charts = list(draw_study(study))
    window = read_learning_window(study)
    parts = tables.parts_table(summary, window)
    body = [
        header(manifest["scenario"]["name"]),
        *write_answer(study, window),
        about.summarise_basis(manifest),
        None if elastic else times_section(manifest, summary),
        variant_chips(list(summary["variants"])),
        tag("section", tag("h2", "Variants"), *describe_variants(manifest, summary), id="variants"),
        elastic_section(study),
        energy_section(manifest, summary),
        usage_section(study),
        None if elastic else losses_section(study),
        league_section([("", summary["league"])] if "league" in summary else []),
        deadlines_section(summary),
        waits_section(manifest, summary),
        *figures(charts),
    ]
    if parts is not None:
        title, table = parts
        body.append(
            tag(
                "section",
                tag("h2", f"Differences by {title}"),
                table,
                tag(
                    "p",
                    "Change against the baseline, and its 95 % interval where there are "
                    "several seeds; by metric.",
                    class_="note",
                ),
                id="parts",
            )
        )
    body.append(
        about.details(
            manifest,
            {
                "digest of the results": manifest["results_digest"],
                "digest of the scenario": manifest["scenario_digest"],
            },
        )
    )
    return assemble_page(manifest["scenario"]["name"], body, list(summary["variants"]), charts)


def write_answer(study: Study, window: LearningWindow) -> list[Element]:
    """The question, and its answer in sentences, with what belongs before the figures."""
    manifest, summary = study.manifest, study.summary
    bill = read_bill(study)
    oracles = oracle_variants(manifest["scenario"])
    return [
        tag("h1", manifest["scenario"]["question"] or manifest["scenario"]["name"]),
        *markup.notes(describe_profiles(manifest), "caution"),
        *closeness_notes(manifest),
        tag(
            "ul",
            *compare_goodput(study),
            *headline.write_sentences(study, bill, window, oracles),
            class_="answer",
        ),
        *markup.notes(bill.explain()),
        *markup.notes(headline.write_remarks(manifest, summary)),
        *markup.notes(cautions(manifest, summary), "caution"),
    ]


def describe_variants(manifest: Manifest, summary: Json) -> Iterator[Element]:
    """The table of the variants, what its marks mean, and notes on its metrics."""
    yield tables.variant_table(summary)
    yield from markup.notes(tables.explain_verdicts([summary], may_draw(manifest, summary)))
    if "saved" not in summary:
        if len(summary["variants"]) > 1:
            yield from markup.notes([tables.SCALES])
        yield from markup.notes(notes(manifest, summary))


def header(name: str) -> Element:
    """The top line of a page."""
    button = tag("button", "Theme", aria_label="Light or dark theme", type="button", id="theme")
    return tag("header", tag("span", tag("b", name), " · wattkeeper"), button)


def variant_chips(variants: Sequence[str]) -> Element | None:
    """Buttons that show and hide variants in all charts."""
    if len(variants) < 2:
        return None
    buttons = [
        tag("button", swatch(index), name, type="button", data_variant=index, aria_pressed="true")
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
    title: str, body: Sequence[Element | None], variants: list[str], charts: Sequence[Chart]
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
        body="\n".join(to_html(element) for element in body if element is not None),
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


def deadlines_section(summary: Json) -> Element | None:
    """The section; None where no job has a deadline, or what jobs use is unknown."""
    if "deadlines" not in summary:
        return None
    rows = [
        [
            cell if head in NAMES else typeset_minus(cell)
            for head, cell in zip(HEADS, cells, strict=True)
        ]
        for cells in deadline_rows(summary)
    ]
    return tag(
        "section",
        tag("h2", deadline_title(summary)),
        build_labelled_table(HEADS, rows),
        *markup.notes(list(deadline_notes(summary))),
        id="deadlines",
    )


def closeness_notes(manifest: Manifest) -> list[Element]:
    """How far the baseline reproduces the record, as a note or a caution; beside the answer."""
    scenario, parts = manifest["scenario"], manifest.get("waits")
    baseline = scenario["baseline"]
    if not parts or baseline not in parts[0]["runs"]:
        return []
    class_ = "caution" if waits.is_far(parts[0], baseline) else "note"
    lines = list(waits.describe_waits(parts, baseline, scenario))[:FIRST_SENTENCES]
    return markup.notes([" ".join(lines)], class_)


def waits_section(manifest: Manifest, summary: Json) -> Element | None:
    """Recorded and simulated waits; None where the trace has no recorded starts."""
    scenario, parts = manifest["scenario"], manifest.get("waits")
    baseline = scenario["baseline"]
    if not parts or baseline not in parts[0]["runs"]:
        return None
    sentences = list(waits.describe_waits(parts, baseline, scenario))
    return tag(
        "section",
        tag("h2", "Waits of each scheduler, and the record"),
        build_labelled_table(waits.CLOSENESS_HEADS, waits.rows_by_scheduler(parts, scenario)),
        *markup.notes([waits.WAITS_NOTE, *sentences[FIRST_SENTENCES:]]),
        tag("h2", "Recorded waits, and simulated ones of ", variant_label(baseline, summary)),
        build_labelled_table(waits.HEADS, waits.rows_by_part(parts, baseline)),
        id="waits",
    )

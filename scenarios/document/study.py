"""The document of a study: its answer, then tables and charts."""

from __future__ import annotations

from collections.abc import Iterator

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.aim import read_aim
from wattkeeper.scenarios.analysis.bill import Bill, read_bill
from wattkeeper.scenarios.analysis.learning.window import LearningWindow, read_learning_window
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.times.deadlines import (
    HEADS,
    deadline_notes,
    deadline_rows,
    deadline_title,
)
from wattkeeper.scenarios.analysis.vocabulary import cautions, describe_profiles, only_elastic
from wattkeeper.scenarios.charts.study_charts import draw_study
from wattkeeper.scenarios.document import basis, blocks
from wattkeeper.scenarios.document.answer import write_answer
from wattkeeper.scenarios.document.blocks import Block, Chapter, Document, Figure
from wattkeeper.scenarios.document.elastic import elastic_section
from wattkeeper.scenarios.document.energy import (
    amounts_table,
    energy_section,
    explain_small,
    savings_chart,
    usage_section,
)
from wattkeeper.scenarios.document.losses import describe_losses, losses_section
from wattkeeper.scenarios.document.rankings import league_section
from wattkeeper.scenarios.document.times import compare_with_record, times_section, waits_section
from wattkeeper.scenarios.document.variants import describe_variants, parts_table


def describe_study(study: Study, *, with_charts: bool = True) -> Document:
    """What a study says; without charts, what a terminal or a notebook can show of it."""
    scenario = study.manifest["scenario"]
    return Document(
        scenario["name"],
        scenario["question"] or scenario["name"],
        list(study.summary["variants"]),
        [section for section in _sections(study, with_charts) if section is not None],
    )


def _sections(study: Study, with_charts: bool) -> Iterator[Chapter | None]:
    manifest, summary = study.manifest, study.summary
    elastic = only_elastic(manifest["scenario"])
    bill = read_bill(study)
    yield Chapter("answer", (), list(_open_study(study, bill)))
    yield Chapter("variants", ("Variants",), list(describe_variants(manifest, summary)))
    if "saved" not in summary and (amounts := amounts_table(bill, summary)):
        notes = [*bill.explain(), *explain_small(bill, summary)]
        yield Chapter(
            "amounts",
            (amounts.title,),
            [amounts._replace(title=""), *blocks.notes(notes)],
            "screens",
        )
    if "league" in summary:
        yield league_section([("", summary["league"])], list(summary["variants"]))
    if "deadlines" in summary:
        yield deadlines_section(summary)
    yield waits_section(manifest, summary)
    yield None if elastic else times_section(manifest, summary)
    yield elastic_section(study)
    yield energy_section(manifest, summary)
    yield usage_section(study)
    losses = list(describe_losses(manifest["scenario"], summary))
    if losses:
        yield Chapter(
            "cost-of-losses", ("What losses cost",), list(blocks.notes(losses)), "screens"
        )
    yield None if elastic else losses_section(study)
    yield _parts_section(summary, read_learning_window(study))
    if with_charts:
        figures = [Figure(chart) for chart in draw_study(study)]
        yield Chapter("charts", (), figures, "page")
    facts = {
        "digest of the results": manifest["results_digest"],
        "digest of the scenario": manifest["scenario_digest"],
    }
    yield basis.details(manifest, facts)


def _open_study(study: Study, bill: Bill) -> Iterator[Block]:
    """What stands on the first screen: the answer, what is saved, and what that rests on."""
    manifest, summary = study.manifest, study.summary
    aim = read_aim(study, bill)
    yield from write_answer(study, aim, bill)
    chart = None if {"saved", "league"} & set(summary) else savings_chart(aim, bill, summary)
    if chart is not None:
        yield chart
    yield from blocks.cautions(basis.warn_of_made_up(manifest["inputs"]))
    yield from blocks.cautions(describe_profiles(manifest))
    yield from compare_with_record(manifest)
    yield from blocks.cautions(cautions(manifest, summary))
    yield basis.describe_basis(manifest)


def deadlines_section(summary: Json) -> Chapter:
    """What jobs with deadlines save, job by job."""
    return Chapter(
        "deadlines",
        (deadline_title(summary),),
        [blocks.text_table(HEADS, deadline_rows(summary)), *blocks.notes(deadline_notes(summary))],
        "screens",
    )


def _parts_section(summary: Json, window: LearningWindow) -> Chapter | None:
    parts = parts_table(summary, window)
    if parts is None:
        return None
    title, table = parts
    after = f" After learning: of one job, {window.describe()} of each group." * bool(window.longer)
    note = (
        "Change against the baseline, and its 95 % interval where there are several seeds; by "
        f"metric, of all jobs, learning included.{after}"
    )
    return Chapter("parts", (f"Differences by {title}",), [table, *blocks.notes([note])], "screens")

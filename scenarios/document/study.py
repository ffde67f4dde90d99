"""The document of a study: its answer, then tables and charts."""

from __future__ import annotations

from collections.abc import Iterator

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.aim import read_aim
from wattkeeper.scenarios.analysis.bill import Bill, read_bill
from wattkeeper.scenarios.analysis.cautions import cautions, describe_profiles
from wattkeeper.scenarios.analysis.learning.window import read_learning_window
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.times.deadlines import (
    HEADS,
    deadline_notes,
    deadline_rows,
    deadline_title,
)
from wattkeeper.scenarios.analysis.vocabulary import has_zoo
from wattkeeper.scenarios.charts.chart import Chart
from wattkeeper.scenarios.charts.columns import read_outcomes
from wattkeeper.scenarios.charts.distributions import draw_distributions
from wattkeeper.scenarios.charts.learning import draw_choices, draw_regret
from wattkeeper.scenarios.charts.node_losses import draw_nodes
from wattkeeper.scenarios.charts.over_time import draw_over_time, draw_zoo
from wattkeeper.scenarios.charts.pareto import draw_tradeoff
from wattkeeper.scenarios.charts.recorded_load import draw_recorded_load
from wattkeeper.scenarios.document import basis, blocks
from wattkeeper.scenarios.document.answer import write_answer
from wattkeeper.scenarios.document.blocks import Block, Chapter, Document, Figure
from wattkeeper.scenarios.document.energy import (
    amounts_table,
    energy_section,
    explain_small,
    savings_chart,
    usage_section,
)
from wattkeeper.scenarios.document.losses import count_losses, losses_section
from wattkeeper.scenarios.document.presenter import Presenter
from wattkeeper.scenarios.document.presenters import find_presenter
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
    scenario = manifest["scenario"]
    presenter = find_presenter(scenario)
    bill = read_bill(study)
    yield Chapter("answer", (), list(_open_study(study, presenter, bill)))
    yield Chapter("variants", ("Variants",), list(describe_variants(manifest, summary, presenter)))
    if presenter.compares_runs and (amounts := amounts_table(bill, summary)):
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
    has_single_jobs = presenter.has_single_jobs(scenario)
    yield waits_section(manifest, summary)
    yield times_section(manifest, summary) if has_single_jobs else None
    yield from presenter.chapters(study)
    yield energy_section(manifest, summary) if presenter.compares_runs else None
    yield usage_section(study)
    losses = [*count_losses(summary), *presenter.describe_losses(scenario, summary)]
    if losses:
        yield Chapter(
            "cost-of-losses", ("What losses cost",), list(blocks.notes(losses)), "screens"
        )
    yield losses_section(study) if has_single_jobs else None
    yield _parts_section(study, presenter) if presenter.compares_runs else None
    if with_charts:
        figures = [Figure(chart) for chart in draw_study(study)]
        yield Chapter("charts", (), figures, "page")
    facts = {
        "digest of the results": manifest["results_digest"],
        "digest of the scenario": manifest["scenario_digest"],
    }
    yield basis.details(manifest, facts)


def _open_study(study: Study, presenter: Presenter, bill: Bill) -> Iterator[Block]:
    """What stands on the first screen: the answer, what is saved, and what that rests on."""
    manifest, summary = study.manifest, study.summary
    aim = read_aim(study, bill, presenter.decisive_metric(manifest["scenario"], summary, bill))
    yield from write_answer(study, presenter, aim, bill)
    has_bars = presenter.compares_runs and "league" not in summary
    if has_bars and (chart := savings_chart(aim, bill, summary)) is not None:
        yield chart
    yield from blocks.cautions(basis.warn_of_made_up(manifest["inputs"]))
    yield from blocks.cautions(describe_profiles(manifest))
    yield from compare_with_record(manifest)
    yield from blocks.cautions([*cautions(manifest, summary), *presenter.warn(summary)])
    yield basis.describe_basis(manifest, presenter.no_input)


def deadlines_section(summary: Json) -> Chapter:
    """What jobs with deadlines save, job by job."""
    return Chapter(
        "deadlines",
        (deadline_title(summary),),
        [blocks.text_table(HEADS, deadline_rows(summary)), *blocks.notes(deadline_notes(summary))],
        "screens",
    )


def _parts_section(study: Study, presenter: Presenter) -> Chapter | None:
    window = read_learning_window(study)
    parts = parts_table(study.summary, presenter.metrics(study.summary), window)
    if parts is None:
        return None
    title, table = parts
    after = f" After learning: of one job, {window.describe()} of each group." * bool(window.longer)
    note = (
        "Change against the baseline, and its 95 % interval where there are several seeds; by "
        f"metric, of all jobs, learning included.{after}"
    )
    return Chapter("parts", (f"Differences by {title}",), [table, *blocks.notes([note])], "screens")


def draw_study(study: Study) -> Iterator[Chart]:
    """All charts for which the study has data."""
    variants = list(study.summary["variants"])
    presenter = find_presenter(study.manifest["scenario"])
    yield from draw_front(study, variants)
    outcomes = read_outcomes(study)
    attempts = [run for run, _ in outcomes]
    recurs = any((jobs.recurrence > 1).any() for _, jobs in outcomes)
    if recurs:
        yield from draw_regret(outcomes, variants)
    else:
        attempts.clear()
    if presenter.has_single_jobs(study.manifest["scenario"]):
        yield from draw_distributions(outcomes, variants)
    outcomes.clear()  # large for a million jobs, and so are the next charts' columns
    yield from draw_recorded_load(study, variants)
    yield from draw_over_time(study, variants)
    yield from presenter.draw(study, variants)
    yield from draw_nodes(study, variants)
    if recurs:
        yield from draw_choices(attempts, variants)
    if has_zoo(study.summary):
        yield from draw_zoo(study, variants)


def draw_front(study: Study, variants: list[str]) -> Iterator[Chart]:
    """Energy against time, or against goodput, a point a variant; none without energy."""
    presenter = find_presenter(study.manifest["scenario"])
    if presenter.compares_runs:
        yield from draw_tradeoff(study, variants, presenter.tradeoff(study.summary))

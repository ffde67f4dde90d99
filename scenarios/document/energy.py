"""Energy of clusters, its cost and emissions: what is saved, a year, the window, who used it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.aim import SAME, Aim, VariantChange
from wattkeeper.scenarios.analysis.bill import Bill, change_of
from wattkeeper.scenarios.analysis.consumption import (
    PARTS,
    RATES,
    UNCHANGED,
    currency,
    format_amount,
    known_rates,
    year_spans,
)
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.usage import UsageRow, usage_rows
from wattkeeper.scenarios.analysis.vocabulary import (
    format_value,
    is_gain,
    is_profiled,
    label_of,
    own_baselines,
    read_means,
)
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import (
    Block,
    Cell,
    Chapter,
    Fold,
    RangeBar,
    Small,
    Span,
    Table,
    TableRow,
)
from wattkeeper.scenarios.document.words import compare_cell, label_row, name_of, unsigned
from wattkeeper.scenarios.spec.case_names import base_of
from wattkeeper.sim.cluster_results.accounting import CARBON, COST, ENERGY

USAGE_NOTE: Final = (
    "Own: energy of the GPUs that their jobs held. Share of idle: while they held GPUs, they bear "
    "what free GPUs draw, by the number of GPUs held at that time; while nobody holds any, it is "
    "nobody's. The rows add up to the energy of the cluster. usage.parquet has all of them."
)

MOST_BARS: Final = 20
"""Variants of the chart of savings; the tables have all."""

MINOR: Final = 0.02
"""Share of the baseline's cost or emissions up to which a difference is called small where the
energy is the same: the hours at which jobs run differ by chance."""


def savings_chart(aim: Aim, bill: Bill, summary: Json) -> Table | None:
    """Bars of what each variant saves, the best first; those that know the future come last.

    Where energy and time decide together (`cost`), the bars are of energy, beside the time.
    """
    shown = [each for each in aim.changes.values() if each.judgement != "same"]
    shown = sorted(shown, key=lambda change: change.foresight)[:MOST_BARS]
    weighs = aim.metric == "cost"
    has_amount = aim.metric in bill.amounts or aim.metric == "gpu_s_saved"
    if not has_amount:
        shown = [change for change in shown if not math.isnan(change.share)]
    if not shown:
        return None
    names = list(summary["variants"])
    labels = own_baselines(summary["variants"])
    metric = "energy_j" if weighs else aim.metric
    spans = [_bounds(change, metric, summary, has_amount) for change in shown]
    least = min(0.0, *(low for _, low, _ in spans))
    most = max(0.0, *(high for _, _, high in spans))
    rows = []
    for change, span in zip(shown, spans, strict=True):
        bar = Cell((), mark=RangeBar(*span, least, most, change.is_modelled))
        about = summary["variants"][change.name]
        cells = [_saving_cell(change, span, aim, bill)]
        if weighs:
            cells = [
                compare_cell(change.name, about, metric, with_value=False)
                for metric in ("energy_j", "time_s", "cost")
            ]
        head: list[Span] = [name_of(change.name, names)]
        head += [Small("modelled")] * change.is_modelled
        head += [Small("knows the future")] * change.foresight
        head += [Small(f"against {change.baseline}")] * (change.name in labels)
        rows.append(TableRow(head, [bar, *cells]))
    heads: tuple[str, ...]
    if weighs:
        heads = ("variant", "energy saved", "energy", "training time", "cost (both)")
    elif is_gain(aim.metric) and not has_amount:
        heads = ("variant", f"more {aim.noun} than the baseline", "change")
    else:
        heads = (
            "variant",
            f"saved: {aim.noun}{bill.period * (aim.metric in bill.amounts)}",
            "saved",
        )
    return Table(blocks.heads(*heads), rows)


def _bounds(
    change: VariantChange, metric: str, summary: Json, has_amount: bool
) -> tuple[float, float, float]:
    """Value and range of a bar: amounts saved, or shares of the baseline."""
    versus = summary["variants"][change.name]["versus"].get(metric) or {}
    if not has_amount and versus.get("ratio") is not None:
        sign = 1 if is_gain(metric) else -1
        bounds = sorted(sign * (bound - 1) for bound in versus["ci95"] or [versus["ratio"]] * 2)
        return sign * (versus["ratio"] - 1), bounds[0], bounds[1]
    factor = 1.0 if has_amount or not change.saved else change.share / change.saved
    low, high = (
        change.saved if math.isnan(bound) else bound for bound in (change.low, change.high)
    )
    return factor * change.saved, factor * low, factor * high


def _saving_cell(
    change: VariantChange, span: tuple[float, float, float], aim: Aim, bill: Bill
) -> Cell:
    """What a bar shows, in figures."""
    value, low, high = span
    share = f"{unsigned(change.share)} %" if change.share == change.share else ""
    if aim.metric == "gpu_s_saved":
        return Cell((format_value(value, aim.metric),), "", "", _open(change))
    if aim.metric not in bill.amounts:
        interval = f"[{unsigned(low)}, {unsigned(high)}]" if low != high else ""
        return Cell((f"{unsigned(value)} %",), "", interval, _open(change))
    interval = ""
    if low != high:
        interval = bill.format_range(low, high, aim.metric, is_modelled=change.is_modelled)
    return Cell((bill.format(value, aim.metric),), share, interval, _open(change))


def _open(change: VariantChange) -> str:
    """What keeps a change from counting."""
    return change.judgement if change.judgement in ("noise", "cannot tell", "one seed") else ""


def amounts_table(bill: Bill, summary: Json) -> Table | None:
    """What each variant uses, and its difference to the baseline, with ranges."""
    if not bill.amounts or (len(bill.amounts) == 1 and not bill.of_year):
        return None
    columns = [metric for metric in bill.amounts if not (metric == CARBON and bill.is_proportional)]
    titles = ["energy" if metric == ENERGY else label_of(metric) for metric in columns]
    if bill.is_proportional:
        titles[0] = f"energy and {label_of(CARBON)}"
    rows = []
    for name in summary["variants"]:
        if base_of(name) in summary["variants"]:
            continue
        rows.append(
            TableRow(
                label_row(name, summary),
                [_amount_cell(bill, metric, name, summary) for metric in columns],
            )
        )
    title = f"The cluster uses{bill.period or ', in the window'}"
    return Table(blocks.heads("variant", *titles), rows, title)


def _amount_cell(bill: Bill, metric: str, name: str, summary: Json) -> Cell:
    mean = bill.mean(metric, name)
    value = bill.format(mean, metric)
    if metric == ENERGY and bill.is_proportional:
        value += f", {bill.format(bill.mean(CARBON, name), CARBON)}"
    baseline = summary["variants"][name]["versus"]["baseline"]
    if name == baseline:
        return Cell((value,))
    change = change_of(bill.amounts[metric], name, baseline, bill.cases)
    whole = bill.mean(metric, baseline)
    if abs(change.mean) <= UNCHANGED * abs(whole) and not change.has_range:
        return Cell((value,), "as the baseline")
    share = f" ({100 * change.mean / whole:+.1f} %)" if whole > 0 else ""
    bounds = ""
    if change.has_range:
        bounds = bill.format_range(
            change.low, change.high, metric, "+", is_modelled=name in bill.cases
        )
    return Cell((value,), f"{bill.format(change.mean, metric, '+')}{share}", bounds)


def explain_small(bill: Bill, summary: Json) -> Iterator[str]:
    """That differences of costs or emissions at the same energy may be those of hours."""
    for metric in set(bill.amounts) & set(RATES):
        for name, about in summary["variants"].items():
            baseline = about["versus"]["baseline"]
            shares = [_share(bill, each, name, baseline) for each in (ENERGY, metric)]
            if None in shares:
                continue
            if abs(shares[0] or 0) <= SAME and UNCHANGED < abs(shares[1] or 0) <= MINOR:
                yield (
                    f"At the same energy, a difference of cost or emissions below {100 * MINOR:g} "
                    "% may come from the hours at which jobs happen to run."
                )
                return


def _share(bill: Bill, metric: str, name: str, baseline: str) -> float | None:
    whole = bill.mean(metric, baseline)
    change = change_of(bill.amounts[metric], name, baseline, bill.cases)
    return None if change.has_range or not whole else change.mean / whole


def energy_section(manifest: Manifest, summary: Json) -> Chapter | None:
    """Energy of the cluster in its window by what GPUs do; None where it is unknown."""
    means = read_means(summary)
    if any(mean.get(ENERGY) is None for mean in means.values()):
        return None
    parts = [part for part in PARTS if any(mean[part] for mean in means.values())]
    shown = [*parts, ENERGY, *known_rates(manifest, summary)]
    titles = ["together" if metric == ENERGY else label_of(metric) for metric in shown]
    money = currency(manifest)
    rows = [
        TableRow(
            label_row(name, summary),
            [
                *_cells(shown, means[name], means[about["versus"]["baseline"]], money),
                Cell((format_value(means[name]["makespan_s"], "makespan_s"),)),
            ],
        )
        for name, about in summary["variants"].items()
    ]
    table = Table(blocks.heads("variant", *titles, label_of("makespan_s")), rows)
    return Chapter(
        "energy",
        ("Energy of the cluster in its window",),
        [table, *blocks.notes([_describe_window(manifest, summary)])],
        "page",
    )


def _cells(
    shown: Sequence[str], own: Mapping[str, float], baseline: Mapping[str, float], money: str | None
) -> list[Cell]:
    """A variant's energy by part and in all, with the difference to the baseline below."""
    cells = []
    for metric in shown:
        whole = metric if metric in RATES else ENERGY
        change = own[metric] - baseline[metric] if own is not baseline else 0.0
        is_changed = abs(change) > UNCHANGED * abs(baseline[whole])
        text = format_amount(change, metric, money, "+") if is_changed else ""
        cells.append(Cell((format_amount(own[metric], metric, money),), text))
    return cells


def _describe_window(manifest: Manifest, summary: Json) -> str:
    several = len(summary["variants"]) > 1
    windows = manifest["windows"]
    from_s, until_s = windows[0]
    stated = manifest["scenario"].get("accounting") or {}
    begin = "" if "from_s" in stated else " (the first submission)"
    end = "" if "until_s" in stated else f" (the last end{' over all variants' * several})"
    span = f"from {from_s / 3600:,.1f} h{begin} to {until_s / 3600:,.1f} h{end}"
    if len(set(map(tuple, windows))) > 1:
        span += " with the first seed; each seed has its own window"
    rates = " ".join(_describe_rates(manifest))
    above = not is_profiled(summary) or "electricity" in manifest
    year = ""
    if above and not stated and year_spans(summary):
        year = " Amounts a year, above, are of the time of the submissions instead."
    return (
        f"All GPUs of the cluster, {span}. Small figures: difference to the baseline. "
        "A variant that ends earlier is charged for its GPUs until the end of the window."
        f"{year}{' ' * bool(rates)}{rates}"
    )


def _describe_rates(manifest: Manifest) -> Iterator[str]:
    """Prices and emissions of electricity, of all variants or by variant."""
    tariffs = manifest.get("electricity", {})
    texts = {
        name: "; ".join(filter(None, (tariff.get("price"), tariff.get("carbon"))))
        for name, tariff in tariffs.items()
    }
    same = len(set(texts.values())) == 1
    for name, text in list(texts.items())[: 1 if same else None]:
        yield f"Electricity{'' if same else f' of {name}'}: {text or 'not stated'}."


def usage_section(study: Study) -> Chapter | None:
    """Use by user, account or queue under each variant; None where jobs name none."""
    manifest, variants = study.manifest, study.summary["variants"]
    baseline = manifest["scenario"]["baseline"]
    tables = {
        name: table
        for name in variants
        if base_of(name) not in variants and (table := _usage_table(study, name)) is not None
    }
    if baseline not in tables:
        return None
    content: list[Block] = [tables.pop(baseline), *blocks.notes([USAGE_NOTE])]
    if tables:
        others = [table._replace(title=name) for name, table in tables.items()]
        content.append(Fold("Under the other variants", others))
    title = ("Who used what under ", name_of(baseline, list(variants)))
    return Chapter("usage", title, content, "page")


def _usage_table(study: Study, variant: str) -> Table | None:
    rows = usage_rows(study, variant)
    if not rows:
        return None
    money = currency(study.manifest)
    heads = [study.manifest["usage"], "jobs", "GPU hours", "own", "share of idle", "energy"]
    heads += ["electricity"] * (rows[0].cost is not None)
    heads += ["emissions"] * (rows[0].carbon_g is not None)
    return blocks.text_table(heads, (list(_format_row(row, money)) for row in rows))


def _format_row(row: UsageRow, money: str | None) -> Iterator[str]:
    yield from (row.name, f"{row.jobs:,.0f}", f"{row.gpu_h:,.0f}")
    yield from (format_amount(each, ENERGY) for each in (row.own_j, row.idle_j, row.energy_j))
    if row.cost is not None:
        yield format_amount(row.cost, COST, money)
    if row.carbon_g is not None:
        yield format_amount(row.carbon_g, CARBON)

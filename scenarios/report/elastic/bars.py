"""Bars and figures of elastic jobs: their time, the energy of a sample, and the rent of nodes."""

from collections.abc import Iterator, Mapping
from typing import Final
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.texts.losses import only_elastic
from wattkeeper.scenarios.analysis.vocabulary import currency_of_rent, format_value, is_elastic
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.charts.stacked_bars import (
    BarPart,
    PartValues,
    build_bars,
    format_figure,
)
from wattkeeper.scenarios.report.markup import build_table, tag
from wattkeeper.scenarios.report.phrases import name_baseline, variant_label
from wattkeeper.scenarios.spec.wording import count

PERCENT: Final = (("%", 0.01),)
JOULES: Final = (("J", 1.0),)

PARTS: Final = {
    "useful": BarPart("useful", "--soft"),
    "redundant": BarPart("redundant", "--v5"),
    "checkpoint": BarPart("checkpoints", "--v1"),
    "pause": BarPart("pauses", "--v3"),
    "waiting": BarPart("waiting", "--v4"),
    "lost": BarPart("lost", "--v2"),
    "open": BarPart("under way at the end", "--v6"),
}
"""Parts of time and energy in the order of a bar."""

SHARES: Final = {
    "useful": "ettr",
    "checkpoint": "checkpoint_share",
    "pause": "pause_share",
    "waiting": "stopped_share",
    "lost": "lost_share",
    "open": "open_share",
}
"""The metric of the share of time of each part."""

RENTS: Final = {
    "elastic_rent": "rent",
    "lost_rent": "of lost work",
    "redundant_rent": "of redundant computation",
    "useful_sample_rent": "of 1,000 samples",
    "on_demand_rent": "same samples on demand",
}


def elastic_section(study: Study) -> Element | None:
    """Bars and figures by variant; None without elastic jobs."""
    summary = study.summary
    if not is_elastic(summary):
        return None
    means = {
        name: {metric: values["mean"] for metric, values in about["metrics"].items()}
        for name, about in summary["variants"].items()
    }
    known = {name: mean for name, mean in means.items() if mean["ettr"] is not None}
    if not known:
        return None
    times = {name: _time_shares(mean) for name, mean in known.items()}
    parts = {part: PARTS[part] for part in SHARES}
    parts["waiting"] = parts["waiting"]._replace(label="too few nodes")
    describe = [_count_losses] if only_elastic(study.manifest["scenario"]) else []
    tables = [build_bars("time", times, parts, PERCENT, summary, *describe)]
    energies = {
        name: _energy_of_sample(mean) for name, mean in known.items() if mean["useful_sample_j"]
    }
    if len(energies) == len(known):
        tables.append(build_bars("energy of a sample", energies, PARTS, JOULES, summary, *describe))
    heading = tag("h2", "What became of the time and energy of elastic jobs")
    rents = _rent_table(study, known)
    notes = list(_explain(study.manifest, known))
    return tag("section", heading, *tables, rents, *markup.notes(notes), id="elastic")


def _time_shares(mean: Mapping[str, float]) -> PartValues:
    return {part: max(0.0, mean.get(metric) or 0.0) for part, metric in SHARES.items()}


def _energy_of_sample(mean: Mapping[str, float]) -> PartValues:
    """Energy of a committed sample by what nodes do, J."""
    each = mean["useful_sample_j"] / mean["elastic_energy_j"]
    return {part: each * mean.get(f"elastic_{part}_j", 0.0) for part in PARTS}


def _count_losses(variant: str, summary: Json) -> Element:
    """How often jobs of a variant lost a node."""
    losses = summary["variants"][variant]["metrics"].get("lost_attempts", {}).get("mean") or 0.0
    return tag("small", f"lost nodes {count(round(losses), 'time')}")


def _rent_table(study: Study, means: Mapping[str, Mapping[str, float]]) -> Element | None:
    """Rent of the nodes of each variant; None where no prices are stated."""
    heads = {
        metric: label
        for metric, label in RENTS.items()
        if any(metric in mean for mean in means.values())
    }
    if not heads:
        return None
    money = currency_of_rent(study.manifest["scenario"])
    rows = []
    for name, mean in means.items():
        label = tag(
            "th",
            variant_label(name, study.summary),
            name_baseline(name, study.summary),
            scope="row",
        )
        cells = [
            tag("td", tag("b", _format_rent(mean.get(metric), metric)), data_label=head)
            for metric, head in heads.items()
        ]
        rows.append(tag("tr", label, *cells))
    columns = ("variant", *(f"{head}, {money}" for head in heads.values()))
    return tag("div", build_table(columns, rows, class_="cards"), class_="scroll")


def _format_rent(value: float | None, metric: str) -> str:
    if value is None:
        return "-"
    return format_value(value, metric) if metric == "useful_sample_rent" else format_figure(value)


def _explain(manifest: Manifest, means: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """What the figures are of."""
    seeds = len(manifest["seeds"])
    metrics = {metric for mean in means.values() for metric in mean}
    beside = (
        ""
        if only_elastic(manifest["scenario"])
        else ", but not those that are free beside other jobs"
    )
    yield (
        "From the first pause of a job to its end"
        + f"; means over {seeds} seeds" * (seeds > 1)
        + ". Useful: steps that were committed. Energy: busy power in steps, idle power in pauses "
        "and while checkpoints are written; waiting: nodes that are too few to train on, that "
        "boot, or that no job takes"
        + beside
        + ". Of a sample: all of it, over the samples that no loss undoes."
    )
    if "elastic_redundant_j" in metrics:
        yield (
            "Redundant: energy of these steps for what nodes compute only to guard against a loss. "
            "Bars of time count it as useful."
        )
    if "elastic_rent" in metrics:
        yield (
            "Rent is that of the same nodes by the hour."
            + " On demand: what the same samples cost on nodes that are never lost, without pauses "
            "and checkpoints, on the fewest nodes that give the highest rate."
            * ("on_demand_rent" in metrics)
        )

"""Elastic jobs: who keeps most of the work, and what became of their time, energy and rent."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import (
    currency_of_rent,
    format_value,
    four_digits,
    is_elastic,
    mean_of,
    only_elastic,
    read_means,
)
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.bars import BarPart, PartValues, bars_table, format_figure
from wattkeeper.scenarios.document.blocks import (
    Cell,
    Chapter,
    Paragraph,
    Role,
    Small,
    Span,
    Strong,
    Table,
    TableRow,
)
from wattkeeper.scenarios.document.words import describe_change, join_list, label_row, name_of
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


ALIKE = 0.001
"""Variants are as good as the best one if they differ by up to this share."""


def elastic_section(study: Study) -> Chapter | None:
    """Bars and figures by variant; None without elastic jobs."""
    summary = study.summary
    if not is_elastic(summary):
        return None
    known = {name: mean for name, mean in read_means(summary).items() if mean["ettr"] is not None}
    if not known:
        return None
    times = {name: _time_shares(mean) for name, mean in known.items()}
    parts = {part: PARTS[part] for part in SHARES}
    parts["waiting"] = parts["waiting"]._replace(label="too few nodes")
    describe = [_count_losses] if only_elastic(study.manifest["scenario"]) else []
    tables = [bars_table("time", times, parts, PERCENT, summary, *describe)]
    energies = {
        name: _energy_of_sample(mean) for name, mean in known.items() if mean["useful_sample_j"]
    }
    if len(energies) == len(known):
        tables.append(bars_table("energy of a sample", energies, PARTS, JOULES, summary, *describe))
    tables += _rent_tables(study, known)
    return Chapter(
        "elastic",
        ("What became of the time and energy of elastic jobs",),
        [*tables, *blocks.notes(_explain(study.manifest, known))],
        "page",
    )


def _time_shares(mean: Mapping[str, float]) -> PartValues:
    return {part: max(0.0, mean.get(metric) or 0.0) for part, metric in SHARES.items()}


def _energy_of_sample(mean: Mapping[str, float]) -> PartValues:
    """Energy of a committed sample by what nodes do, J."""
    each = mean["useful_sample_j"] / mean["elastic_energy_j"]
    return {part: each * mean.get(f"elastic_{part}_j", 0.0) for part in PARTS}


def _count_losses(variant: str, summary: Json) -> str:
    """How often jobs of a variant lost a node."""
    losses = mean_of(variant, "lost_attempts", summary) or 0.0
    return f"lost nodes {count(round(losses), 'time')}"


def _rent_tables(study: Study, means: Mapping[str, Mapping[str, float]]) -> Iterator[Table]:
    """Rent of the nodes of each variant; nothing where no prices are stated."""
    heads = {
        metric: label
        for metric, label in RENTS.items()
        if any(metric in mean for mean in means.values())
    }
    if not heads:
        return
    money = currency_of_rent(study.manifest["scenario"])
    rows = [
        TableRow(
            label_row(name, study.summary),
            [Cell((_format_rent(mean.get(metric), metric),)) for metric in heads],
        )
        for name, mean in means.items()
    ]
    yield Table(blocks.heads("variant", *(f"{head}, {money}" for head in heads.values())), rows)


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


def compare_goodput(study: Study) -> Iterator[Paragraph]:
    """Who keeps most, and at the least energy and rent, of several variants with elastic jobs."""
    summary = study.summary
    if best := _best("goodput", summary, most=True):
        share = format_value(mean_of(best[0], "ettr", summary), "ettr")
        more = f"{_describe_span(study, best[0])}; steps that count fill {share} of the time"
        yield _sentence(
            "lead", best, "keep", "most of the work: ", "goodput", "samples/s", summary, more
        )
    if best := _best("useful_sample_j", summary):
        yield _sentence(
            "answer",
            best,
            "need",
            "the least energy: ",
            "useful_sample_j",
            "a committed sample",
            summary,
            _count_useful(best[0], summary),
        )
    if best := _best("useful_sample_rent", summary):
        money = currency_of_rent(study.manifest["scenario"])
        yield _sentence(
            "answer",
            best,
            "cost",
            "the least rent: ",
            "useful_sample_rent",
            f"{money} for 1,000 samples",
            summary,
            _compare_on_demand(best[0], money, summary),
        )


def _describe_span(study: Study, variant: str) -> str:
    """How long elastic jobs last; nothing where other jobs last longer."""
    span_s = study.manifest["scenario"]["workload"].get("until_s")
    if span_s is None and only_elastic(study.manifest["scenario"]):
        span_s = mean_of(variant, "makespan_s", study.summary)
    return "" if span_s is None else f", over {format_value(span_s, 'makespan_s')}"


def _count_useful(variant: str, summary: Json) -> str:
    """What share of the energy of a variant went into steps that count."""
    useful_j, energy_j, redundant_j = (
        mean_of(variant, f"elastic_{what}_j", summary) for what in ("useful", "energy", "redundant")
    )
    if useful_j is None or not energy_j:
        return ""
    text = f"; {100 * useful_j / energy_j:.1f} % of it went into steps that count"
    return text + (", without redundant computation" if redundant_j else "")


def _compare_on_demand(variant: str, money: str, summary: Json) -> str:
    """What the samples of a variant cost on nodes that are never lost."""
    rent, samples = (mean_of(variant, m, summary) for m in ("on_demand_rent", "useful_samples"))
    if not rent or not samples:
        return ""
    each = four_digits(1000 * rent / samples)
    return f"; on nodes that are never lost the same samples would cost {each} {money}"


def _best(metric: str, summary: Json, most: bool = False) -> list[str]:
    """The variants with the best value, those that are as good among them; none if none has one."""
    known = {
        name: value
        for name in summary["variants"]
        if (value := mean_of(name, metric, summary)) is not None
    }
    if not known:
        return []
    best = max(known.values()) if most else min(known.values())
    return [name for name, value in known.items() if abs(value - best) <= ALIKE * abs(best)]


def _sentence(
    role: Role,
    best: Sequence[str],
    verb: str,
    praise: str,
    metric: str,
    unit: str,
    summary: Json,
    more: str,
) -> Paragraph:
    """The best variants, their value, and how far that is from their baseline's."""
    names = list(summary["variants"])
    value = format_value(mean_of(best[0], metric, summary), metric).removesuffix("/s")
    words: list[Span] = [
        *join_list([name_of(name, names)] for name in best),
        f" {verb}{'s' * (len(best) == 1)} {praise}",
        Strong(f"{value} {unit}"),
    ]
    versus = summary["variants"][best[0]]["versus"]
    baseline, change = versus["baseline"], versus.get(metric) or {}
    if baseline not in best and change.get("ratio") is not None:
        text, interval = describe_change(metric, change)
        seeds = summary["variants"][best[0]]["metrics"][metric]["n"]
        opens = {
            "noise": " (within noise)",
            "cannot tell": f" (cannot be told from chance with {seeds} seeds)",
        }
        bounds = [Small(f" {interval}")] * bool(interval)
        doubt = opens.get(change.get("verdict") or "", "")
        words += [", ", Strong(text), *bounds, doubt, " than ", name_of(baseline, names)]
    return Paragraph(role, [*words, f"{more}."])

"""Elastic jobs: who keeps most of the work, and what became of their time, energy and rent."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.bill import Bill
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import (
    Tradeoff,
    currency_of_rent,
    format_value,
    four_digits,
    mean_of,
    read_means,
)
from wattkeeper.scenarios.charts.chart import Chart
from wattkeeper.scenarios.charts.elastic_nodes import draw_elastic_nodes
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
from wattkeeper.scenarios.document.presenter import Presenter
from wattkeeper.scenarios.document.words import describe_change, join_list, label_row, name_of
from wattkeeper.scenarios.spec.wording import count, merge_names

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


NOT_USEFUL: Final = {
    "redundant": "redundant",
    "lost": "lost",
    "open": "under way at the end",
    "pause": "pauses",
    "checkpoint": "checkpoints",
    "waiting": "waiting nodes",
}
"""Parts of the energy of elastic jobs that are not useful, and their names."""

METRICS: Final = ("goodput", "ettr", "useful_sample_j", "useful_sample_rent", "p99_downtime_s")
"""In which variants can differ, in the order of columns."""

ALIKE: Final = 0.001
"""Variants are as good as the best one if they differ by up to this share."""


class ElasticPresenter(Presenter):
    """See the module."""

    no_input: ClassVar[str] = "none: rates are stated"

    @override
    def metrics(self, summary: Json) -> tuple[str, ...]:
        """Those of elastic jobs; when jobs end, only if that differs between variants."""
        every = [about["metrics"] for about in summary["variants"].values()]
        shown = [metric for metric in METRICS if any(metric in own for own in every)]
        if len({metrics["jct_s"]["mean"] for metrics in every}) > 1:
            shown.append("jct_s")
        return tuple(shown)

    @override
    def tradeoff(self, summary: Json) -> Tradeoff:
        labels = "goodput, samples/s", "energy of a committed sample"
        return Tradeoff("goodput", "useful_sample_j", labels)

    @override
    def define_metrics(self, manifest: Manifest, summary: Json) -> Iterator[str]:
        shown = self.metrics(summary)
        others = " job completion: from submission to end, mean." * ("jct_s" in shown)
        money = currency_of_rent(manifest["scenario"])
        rent = f"; rent/1,000: rent of these nodes over every 1,000 samples, {money}" * (
            "useful_sample_rent" in shown
        )
        yield (
            "goodput: samples that elastic jobs committed a second, from their first pause to "
            "their end. ETTR: effective training time ratio, the share of that time in steps that "
            "were committed. energy/sample: energy of all nodes that jobs hold or wait for, over "
            f"the samples that they committed{rent}. p99 downtime: from a loss until training goes "
            f"on, what 99 % stay below.{others}"
        )

    @override
    def decisive_metric(self, scenario: Json, summary: Json, bill: Bill) -> str:
        """The goodput, whatever is stated of electricity."""
        return self.metric_of_jobs(scenario, summary, bill)

    @override
    def metric_of_jobs(self, scenario: Json, summary: Json, bill: Bill) -> str:
        return "goodput"

    @override
    def has_single_jobs(self, scenario: Json) -> bool:
        return scenario["workload"].get("others") is not None

    @override
    def warn(self, summary: Json) -> Iterator[str]:
        """Counts jobs that never ended, where losses of nodes do not explain them."""
        for name, about in summary["variants"].items():
            metrics = about["metrics"]
            unable = metrics.get("unable_jobs", {}).get("mean")
            if unable and "node_losses" not in metrics:
                yield (
                    f"{name}: {count(round(unable, 1), 'job')} never ended: nodes were too few "
                    "until all elastic jobs ended."
                )

    @override
    def tell(self, study: Study) -> Iterator[Paragraph]:
        if len(study.summary["variants"]) > 1:
            yield from _compare_goodput(study, self)

    @override
    def chapters(self, study: Study) -> Iterator[Chapter]:
        """Bars and figures by variant."""
        known = {
            name: mean
            for name, mean in read_means(study.summary).items()
            if mean["ettr"] is not None
        }
        if not known:
            return
        is_alone = not self.has_single_jobs(study.manifest["scenario"])
        tables = _bar_tables(study.summary, known, [_count_losses] * is_alone)
        yield Chapter(
            "elastic",
            ("What became of the time and energy of elastic jobs",),
            [
                *tables,
                *_rent_tables(study, known),
                *blocks.notes(_explain(study.manifest, known, is_alone)),
            ],
            "page",
        )

    @override
    def describe_losses(self, scenario: Json, summary: Json) -> Iterator[str]:
        return merge_names(_describe_elastic(scenario, summary))

    @override
    def draw(self, study: Study, variants: list[str]) -> Iterator[Chart]:
        return draw_elastic_nodes(study, variants)


def _bar_tables(
    summary: Json,
    means: Mapping[str, Mapping[str, float]],
    describe: Sequence[Callable[[str, Json], str]],
) -> Iterator[Table]:
    """Bars of time and, where it is known, of the energy of a sample."""
    times = {name: _time_shares(mean) for name, mean in means.items()}
    parts = {part: PARTS[part] for part in SHARES}
    parts["waiting"] = parts["waiting"]._replace(label="too few nodes")
    yield bars_table("time", times, parts, PERCENT, summary, *describe)
    energies = {
        name: _energy_of_sample(mean) for name, mean in means.items() if mean["useful_sample_j"]
    }
    if len(energies) == len(means):
        yield bars_table("energy of a sample", energies, PARTS, JOULES, summary, *describe)


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


def _explain(
    manifest: Manifest, means: Mapping[str, Mapping[str, float]], is_alone: bool
) -> Iterator[str]:
    """What the figures are of."""
    seeds = len(manifest["seeds"])
    metrics = {metric for mean in means.values() for metric in mean}
    beside = "" if is_alone else ", but not those that are free beside other jobs"
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


def _compare_goodput(study: Study, presenter: ElasticPresenter) -> Iterator[Paragraph]:
    """Who keeps most, and at the least energy and rent, of several variants with elastic jobs."""
    summary = study.summary
    if best := _best("goodput", summary, most=True):
        share = format_value(mean_of(best[0], "ettr", summary), "ettr")
        more = f"{_tell_span(study, best[0], presenter)}; steps that count fill {share} of the time"
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


def _tell_span(study: Study, variant: str, presenter: ElasticPresenter) -> str:
    """How long elastic jobs last; nothing where other jobs last longer."""
    scenario = study.manifest["scenario"]
    span_s = scenario["workload"].get("until_s")
    if span_s is None and not presenter.has_single_jobs(scenario):
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


def _describe_elastic(scenario: Json, summary: Json) -> Iterator[tuple[str, str]]:
    money = currency_of_rent(scenario)
    for name, mean in read_means(summary).items():
        if mean.get("ettr") is not None:
            yield name, f"{_describe_time(mean)}{_describe_energy(mean, money)}"
        elif mean.get("goodput") is not None:
            yield name, "no elastic job ever held a node."


def _describe_time(mean: Mapping[str, float]) -> str:
    """What elastic jobs did of their time."""
    shares = ", ".join(
        f"{what} {100 * mean[share]:z.1f} %"
        for what, share in (
            ("lost", "lost_share"),
            ("under way at the end", "open_share"),
            ("pauses", "pause_share"),
            ("checkpoints", "checkpoint_share"),
            ("too few nodes", "stopped_share"),
        )
        if share in mean
    )
    return (
        f"elastic jobs committed {four_digits(mean['goodput'])} samples/s. Their time: steps that "
        f"count {100 * mean['ettr']:.1f} %, {shares}."
    )


def _describe_energy(mean: Mapping[str, float | None], money: str) -> str:
    """What a committed sample took."""
    energy_j, rent = mean["useful_sample_j"], mean.get("useful_sample_rent")
    if energy_j is None:
        return ""
    text = f" A committed sample took {four_digits(energy_j)} J"
    whole = mean["elastic_energy_j"]
    if whole:
        listed = ", ".join(
            f"{label} {100 * (mean[f'elastic_{part}_j'] or 0.0) / whole:z.1f} %"
            for part, label in NOT_USEFUL.items()
            if f"elastic_{part}_j" in mean
        )
        text += f" ({listed})"
    return text + (
        "." if rent is None else f"; the rent of 1,000 is {four_digits(1000 * rent)} {money}."
    )

"""Sentences that say which way to be resilient keeps most of the work of elastic jobs."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.texts.losses import only_elastic
from wattkeeper.scenarios.analysis.vocabulary import (
    currency_of_rent,
    format_value,
    four_digits,
    is_elastic,
)
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.phrases import Words, describe_change, join_list, variant_label

ALIKE = 0.001
"""Variants are as good as the best one if they differ by up to this share."""


def compare_goodput(study: Study) -> Iterator[Element]:
    """Who keeps most, and at the least energy and rent; nothing without several variants."""
    summary = study.summary
    if not is_elastic(summary) or len(summary["variants"]) < 2:
        return
    if best := _best("goodput", summary, most=True):
        share = format_value(_mean(best[0], "ettr", summary), "ettr")
        more = f"{_describe_span(study, best[0])}; steps that count fill {share} of the time"
        yield _sentence(best, "keep", "most of the work: ", "goodput", "samples/s", summary, more)
    if best := _best("useful_sample_j", summary):
        yield _sentence(
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
        span_s = _mean(variant, "makespan_s", study.summary)
    return "" if span_s is None else f", over {format_value(span_s, 'makespan_s')}"


def _count_useful(variant: str, summary: Json) -> str:
    """What share of the energy of a variant went into steps that count."""
    useful_j, energy_j, redundant_j = (
        _mean(variant, f"elastic_{what}_j", summary) for what in ("useful", "energy", "redundant")
    )
    if useful_j is None or not energy_j:
        return ""
    text = f"; {100 * useful_j / energy_j:.1f} % of it went into steps that count"
    return text + (", without redundant computation" if redundant_j else "")


def _compare_on_demand(variant: str, money: str, summary: Json) -> str:
    """What the samples of a variant cost on nodes that are never lost."""
    rent, samples = (_mean(variant, m, summary) for m in ("on_demand_rent", "useful_samples"))
    if not rent or not samples:
        return ""
    each = four_digits(1000 * rent / samples)
    return f"; on nodes that are never lost they would cost {each} {money}"


def _mean(variant: str, metric: str, summary: Json) -> float | None:
    value: float | None = summary["variants"][variant]["metrics"].get(metric, {}).get("mean")
    return value


def _best(metric: str, summary: Json, most: bool = False) -> list[str]:
    """The variants with the best value, those that are as good among them; none if none has one."""
    known = {
        name: value
        for name in summary["variants"]
        if (value := _mean(name, metric, summary)) is not None
    }
    if not known:
        return []
    best = max(known.values()) if most else min(known.values())
    return [name for name, value in known.items() if abs(value - best) <= ALIKE * abs(best)]


def _sentence(
    best: Sequence[str], verb: str, role: str, metric: str, unit: str, summary: Json, more: str
) -> Element:
    """The best variants, their value, and how far that is from their baseline's."""
    named: list[list[Words]] = [[variant_label(name, summary)] for name in best]
    value = format_value(_mean(best[0], metric, summary), metric).removesuffix("/s")
    words: list[Words] = [
        *join_list(named),
        f" {verb}{'s' * (len(best) == 1)} {role}",
        tag("strong", f"{value} {unit}"),
    ]
    versus = summary["variants"][best[0]]["versus"]
    baseline, change = versus["baseline"], versus.get(metric) or {}
    if baseline not in best and change.get("ratio") is not None:
        text, interval = describe_change(metric, change)
        noise = " (within noise)" if change.get("verdict") == "noise" else None
        label = variant_label(baseline, summary)
        words += [", ", tag("strong", text), interval, noise, " than ", label]
    return tag("li", *words, more, ".")

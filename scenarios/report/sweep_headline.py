"""The answer of a sweep in sentences."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import (
    GAINS,
    choose_unit,
    format_value,
    metric_units,
    tradeoff_metrics,
)
from wattkeeper.scenarios.report.headline import SENTENCES
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.phrases import (
    FUTURE,
    WORDS,
    Words,
    describe_change,
    join_list,
    variant_label,
    variant_sentence,
)
from wattkeeper.scenarios.report.points import PointRow, describe_points


def write_sentences(points: Sequence[PointRow], variants: Sequence[str]) -> Iterator[Element]:
    """The points of least energy and time, or most goodput, and the ranges of changes."""
    if not points:
        yield tag("li", "No point is done: there is nothing to compare.")
        return
    names = {"variants": dict.fromkeys(variants)}
    time, energy, _ = tradeoff_metrics(points[0].summary)
    for metric in (energy, time):
        words = _describe_best(metric, points, names)
        if words:
            yield tag("li", *words, ".")
    baselines = {
        name: about["versus"]["baseline"] for name, about in points[0].summary["variants"].items()
    }
    others = [name for name, baseline in baselines.items() if name != baseline]
    for name in others[:SENTENCES]:
        ranges = [
            words for metric in (energy, time) if (words := _describe_range(name, metric, points))
        ]
        if ranges:
            oracle = any(name in point.oracles for point in points)
            yield variant_sentence(
                name,
                names,
                *([FUTURE] if oracle else []),
                ": ",
                *join_list(ranges),
                ", against ",
                variant_label(baselines[name], names),
                ".",
            )


def _describe_best(metric: str, points: Sequence[PointRow], names: Json) -> list[Words]:
    """The best value of reachable policies, then that of policies that know the future."""
    extreme, title = (max, "Most") if metric in GAINS else (min, "Least")
    results = [
        (about["metrics"][metric], point, name)
        for point in points
        for name, about in point.summary["variants"].items()
        if about["metrics"][metric]["mean"] is not None
    ]
    noun = WORDS[metric][0]
    words: list[Words] = []
    for oracle in (False, True):
        group = [result for result in results if (result[2] in result[1].oracles) == oracle]
        if not group:
            continue
        statistics, _, first = extreme(group, key=lambda result: result[0]["mean"])
        best = format_value(statistics["mean"], metric)
        by_variant: dict[str, list[PointRow]] = {}
        for others, point, name in group:
            if format_value(others["mean"], metric) == best:
                by_variant.setdefault(name, []).append(point)
        where = describe_points(
            by_variant[first], [point for _, point, name in group if name == first]
        )
        if oracle:
            words += [
                "; " if words else f"{title} {noun}: ",
                best,
                " by ",
                variant_label(first, names),
                FUTURE,
                f", {where}",
            ]
        else:
            ties = ", ".join(name for name in by_variant if name != first)
            as_good = f" (and as {'much' if metric in GAINS else 'little'} by {ties})"
            words += [
                f"{title} {noun}: ",
                tag("strong", best),
                _interval(statistics, metric),
                " by ",
                variant_label(first, names),
                as_good if ties else None,
                f" {where}",
            ]
    return words


def _interval(statistics: Json, metric: str) -> Element | None:
    """The interval of a mean, in the unit of the mean."""
    if not statistics["ci95"] or statistics["ci95"][0] == statistics["ci95"][1]:
        return None
    _, size = choose_unit([statistics["mean"]], metric_units(metric))
    low, high = (f"{bound / size:,.2f}" for bound in statistics["ci95"])
    return tag("small", f" [{low}, {high}]")


def _describe_range(name: str, metric: str, points: Sequence[PointRow]) -> list[Words]:
    """The smallest and the largest change of a variant against its baseline, and where."""
    compared = [
        (versus, point)
        for point in points
        if name in point.summary["variants"]
        and (versus := point.summary["variants"][name]["versus"].get(metric))
    ]
    changes = [(versus, point) for versus, point in compared if versus["ratio"] is not None]
    if not changes:
        return []
    noun, among = WORDS[metric][0], [point for _, point in compared]
    if all(versus.get("verdict") == "noise" for versus, _ in changes):
        where = describe_points([point for _, point in changes], among)
        return [f"no difference beyond noise in {noun} {where}"]
    ends: list[list[Words]] = []
    texts = [describe_change(metric, versus)[0] for versus, _ in changes]
    for extreme in (min, max):
        versus, _ = extreme(changes, key=lambda change: change[0]["ratio"])
        text, interval = describe_change(metric, versus)
        there = [point for (_, point), other in zip(changes, texts, strict=True) if other == text]
        end = [*_describe_end(versus, text, interval), f" {describe_points(there, among)}"]
        if len(there) == len(changes):
            return [f"{noun} ", *end]
        ends.append(end)
    return [f"{noun} from ", *ends[0], " to ", *ends[1]]


def _describe_end(versus: Json, text: str, interval: Element | None) -> list[Words]:
    if versus.get("verdict") == "noise":
        return [f"only noise ({text}", interval, ")"]
    if versus.get("verdict") == "identical":
        return ["the same"]
    return [tag("strong", text), interval]

"""The answer of a sweep in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import tradeoff_metrics, units_of, value_text
from wattkeeper.scenarios.report.headline import SENTENCES
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.phrases import FUTURE, WORDS, Words, change, line, listed, variant
from wattkeeper.scenarios.report.points import PointRow, places


def sentences(sweep: Json, done: Sequence[PointRow], variants: Sequence[str]) -> Iterator[Element]:
    """Where energy and time are least, and what each variant changes from where to where."""
    if not done:
        yield tag("li", "No point is done: there is nothing to compare.")
        return
    names = {"variants": dict.fromkeys(variants)}
    time, energy, _ = tradeoff_metrics(done[0].summary)
    for metric in (energy, time):
        said = _least(metric, done, names)
        if said:
            yield tag("li", *said, ".")
    baselines = {name: one["versus"]["baseline"]
                 for name, one in done[0].summary["variants"].items()}  # fmt: skip
    others = [name for name, baseline in baselines.items() if name != baseline]
    for name in others[:SENTENCES]:
        ranges = [words for metric in (energy, time) if (words := _range(name, metric, done))]
        if ranges:
            bound = any(name in point.bounds for point in done)
            yield line(
                name, names, *([FUTURE] if bound else []), ": ", *listed(ranges),
                ", against ", variant(baselines[name], names), ".",
            )  # fmt: skip


def _least(metric: str, done: Sequence[PointRow], names: Json) -> list[Words]:
    """The least of what policies can reach, and the least of those that know the future."""
    found = [
        (one["metrics"][metric], point, name)
        for point in done
        for name, one in point.summary["variants"].items()
        if one["metrics"][metric]["mean"] is not None
    ]
    said: list[Words] = []
    for bound in (False, True):
        its = [one for one in found if (one[2] in one[1].bounds) == bound]
        if not its:
            continue
        of, _, first = min(its, key=lambda one: one[0]["mean"])
        least = value_text(of["mean"], metric)
        by: dict[str, list[PointRow]] = {}
        for its_of, point, who in its:
            if value_text(its_of["mean"], metric) == least:
                by.setdefault(who, []).append(point)
        where = places(by[first], [point for _, point, who in its if who == first])
        equal = [name for name in by if name != first]
        also: list[Words] = [" (and as little by ", ", ".join(equal), ")"] if equal else []
        if bound:
            said += ["; " if said else f"Least {WORDS[metric][0]}: ", least, " by ",
                     variant(first, names), FUTURE, f", {where}"]  # fmt: skip
        else:
            noun, interval = WORDS[metric][0], _interval(of, metric)
            said += [f"Least {noun}: ", tag("strong", least), interval, " by ",
                     variant(first, names), *also, f" {where}"]  # fmt: skip
    return said


def _interval(of: Json, metric: str) -> Element | None:
    """The interval of a mean, in the unit in which the mean is said."""
    if not of["ci95"] or of["ci95"][0] == of["ci95"][1]:
        return None
    units = units_of(metric)
    _, size = next((unit for unit in units if abs(of["mean"]) >= unit[1]), units[-1])
    low, high = (f"{bound / size:,.2f}" for bound in of["ci95"])
    return tag("small", f" [{low}, {high}]")


def _range(name: str, metric: str, done: Sequence[PointRow]) -> list[Words]:
    """From which to which change against the baseline a variant goes, and where."""
    found = [
        (versus, point)
        for point in done
        if name in point.summary["variants"]
        and (versus := point.summary["variants"][name]["versus"].get(metric))
        and versus["ratio"] is not None
    ]
    if not found:
        return []
    noun = WORDS[metric][0]
    among = [point for _, point in found]
    if all(versus.get("verdict") == "noise" for versus, _ in found):
        return [f"no difference beyond noise in {noun} {_everywhere(among)}"]
    said: list[list[Words]] = []
    texts = [change(metric, versus)[0] for versus, _ in found]
    for best in (min, max):
        versus, _ = best(found, key=lambda one: one[0]["ratio"])
        text, interval = change(metric, versus)
        there = [point for point, one in zip(among, texts, strict=True) if one == text]
        where = _everywhere(among) if len(there) == len(among) else places(there, among)
        said.append([*_said(versus, text, interval), f" {where}"])
        if len(there) == len(among):
            return [f"{noun} ", *said[0]]
    return [f"{noun} from ", *said[0], " to ", *said[1]]


def _everywhere(points: Sequence[PointRow]) -> str:
    return places(points, points)


def _said(versus: Json, text: str, interval: Element | None) -> list[Words]:
    if versus.get("verdict") == "noise":
        return [f"only noise ({text}", interval, ")"]
    if versus.get("verdict") == "identical":
        return ["the same"]
    return [tag("strong", text), interval]

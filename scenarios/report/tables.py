"""The tables that an answer rests on: variants, and their differences by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import SHARES, knows_energy, shown_metrics, value_text
from wattkeeper.scenarios.report import zoo_savings
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.phrases import WORDS, minus, signed, variant

PARTS = {"workload": "workload", "gpu_type": "GPU type"}
"""By what differences are shown."""

VERDICTS = {
    "lower": "the 95 % interval of the change lies below 0 %",
    "higher": "the 95 % interval of the change lies above 0 %",
    "noise": "the 95 % interval includes 0 %, so luck may explain the difference",
    "identical": "equal with every seed",
    "one seed": "no interval can be given",
}
"""What statistics say of a difference."""

JUDGED = {"lower", "higher", "noise"}
ALONE = (
    " Each is of one difference alone, at 95 % and unadjusted for their number: of twenty that are "
    "only luck, about one is marked lower or higher (wattkeeper compare, of two folders, adjusts: "
    "Holm)."
)
"""What is said of verdicts that rest on an interval."""

MOST_PARTS = 400
"""Rows of the table by workload."""


def verdicts(summaries: Iterable[Json]) -> Iterator[str]:
    """What the badges mean that are shown of these."""
    found = {
        of["verdict"]
        for summary in summaries
        if "saved" not in summary
        for one in summary["variants"].values()
        for of in one["versus"].values()
        if isinstance(of, Mapping) and of.get("verdict")
    }
    said = [f"{name}: {meaning}" for name, meaning in VERDICTS.items() if name in found]
    if said:
        yield f"Marks: {'; '.join(said)}.{ALONE if found & JUDGED else ''}"


def comparison(summary: Json) -> Element:
    """The variants and what each metric is, against the baseline."""
    if "saved" in summary:
        return zoo_savings.table(summary)
    shown = shown_metrics(summary)
    heads = dict(shown)
    if "cost" in shown:
        heads["regret"] = "regret"
    spans = {metric: _span(metric, summary) for metric in shown}
    rows = []
    for name, one in summary["variants"].items():
        cells = [tag("th", variant(name, summary), _against(name, one, summary), scope="row")]
        cells += [_cell(name, one, metric, heads[metric], spans.get(metric)) for metric in heads]
        rows.append(tag("tr", *cells))
    titles = [tag("th", title, scope="col") for title in ("variant", *heads.values())]
    return tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *rows), class_="cards")


def _against(name: str, one: Json, summary: Json) -> Element | None:
    """Which one it is compared with, where variants have several baselines."""
    baseline = one["versus"]["baseline"]
    if baseline == name:
        return tag("small", "baseline") if len(summary["variants"]) > 1 else None
    several = len({of["versus"]["baseline"] for of in summary["variants"].values()}) > 1
    return tag("small", f"against {baseline}") if several else None


def _cell(name: str, one: Json, metric: str, title: str, span: float | None) -> Element:
    cell = value_cell(name, one, metric, title, compared=bool(span))
    versus = compared_with(name, one, metric)
    if versus and span:
        cell.append(_whisker(versus, span))
    return cell


def value_cell(name: str, one: Json, metric: str, title: str, compared: bool = True) -> Element:
    """A value, its change against the baseline, and what statistics say of that."""
    known = one["metrics"].get(metric, {}).get("mean")
    inside: list[Element | None] = [tag("b", minus(value_text(known, metric)))]
    versus = compared_with(name, one, metric)
    if compared and versus:
        inside += [tag("span", signed(versus), class_="change"), badge(versus)]
    return tag("td", *inside, data_label=title)


def compared_with(name: str, one: Json, metric: str) -> Json | None:
    """The comparison with the baseline, where there is one."""
    versus: Json | None = one["versus"].get(metric) if metric not in SHARES else None
    known = versus and versus["ratio"] is not None and one["versus"]["baseline"] != name
    return versus if known else None


def badge(versus: Json) -> Element | None:
    """What statistics say of a difference; where its size is known, it says that too."""
    verdict, effect = versus.get("verdict"), versus.get("effect")
    if verdict is None:
        return None
    made = tag("span", verdict, class_=f"badge {verdict.replace(' ', '-')}")
    if effect is not None:
        made.set("title", f"effect size {effect:.2f}: mean of the differences over their deviation")
    return made


def _span(metric: str, summary: Json) -> float:
    """The largest change of any variant, its interval included."""
    most = 0.0
    for one in summary["variants"].values():
        versus = one["versus"].get(metric) or {}
        if versus.get("ratio") is not None:
            bounds = versus["ci95"] or [versus["ratio"]]
            most = max(most, *(abs(bound - 1) for bound in (*bounds, versus["ratio"])))
    return most


def _whisker(versus: Json, span: float) -> Element:
    """The change and its interval as a picture; the middle line is the baseline."""

    def at(ratio: float) -> float:
        return round(60 + 54 * (ratio - 1) / span, 2)

    low, high = versus["ci95"] or (versus["ratio"], versus["ratio"])
    return tag(
        "svg",
        tag("line", x1=60, y1=0, x2=60, y2=14, class_="zero"),
        tag("line", x1=at(low), y1=7, x2=at(high), y2=7, class_="range"),
        tag("circle", cx=at(versus["ratio"]), cy=7, r=4, class_="dot"),
        viewBox="0 0 120 14", class_="whisker", aria_hidden="true",
    )  # fmt: skip


def parts(summary: Json) -> tuple[str, Element] | None:
    """By what results are broken down, and the table of differences; None if it has one part."""
    if "saved" in summary:
        return None
    key = next((key for key in PARTS if len(summary["by"][key]) > 1), None)
    if key is None:
        return None
    title, found = PARTS[key], summary["by"][key]
    shown = {metric: name for metric, name in shown_metrics(summary).items() if metric in WORDS}
    for whole in ("cluster_energy_j", "gpu_s_saved"):
        shown.pop(whole, None)
    if summary["by"]["workload"]:
        last = "last5_energy_j" if knows_energy(summary) else "last5_time_s"
        shown[last] = f"{'energy' if last == 'last5_energy_j' else 'time'} after learning"
    rows = []
    for part, variants in found.items():
        others = {name: one for name, one in variants.items() if one["versus"]["baseline"] != name}
        for at, (name, one) in enumerate(others.items()):
            head = [tag("th", part, rowspan=len(others), scope="rowgroup")] if not at else []
            cells = [_part_cell(one, metric, label) for metric, label in shown.items()]
            rows.append(tag("tr", *head, tag("th", variant(name, summary), scope="row"), *cells))
    if not rows:
        return None
    titles = [tag("th", text, scope="col") for text in (title, "variant", *shown.values())]
    table = tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *rows[:MOST_PARTS]))
    if len(rows) > MOST_PARTS:
        table.append(tag("caption", f"The first {MOST_PARTS} of {len(rows)} rows."))
    return title, tag("div", table, class_="scroll")


def _part_cell(one: Json, metric: str, label: str) -> Element:
    versus = one["versus"].get(metric) or {}
    if versus.get("ratio") is None:
        return tag("td", "-", data_label=label)
    changed, _, interval = signed(versus).partition(" [")
    inside = [tag("b", changed)]
    if interval:
        inside.append(tag("span", f"[{interval}", class_="change"))
    return tag("td", *inside, badge(versus), data_label=label)

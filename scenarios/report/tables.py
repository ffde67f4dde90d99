"""Tables of a page: metrics of the variants, and their changes by workload or GPU type."""

from collections.abc import Iterable, Iterator, Mapping
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.learning.window import LearningWindow
from wattkeeper.scenarios.analysis.vocabulary import (
    SHARES,
    format_value,
    knows_energy,
    shown_metrics,
)
from wattkeeper.scenarios.report import zoo_savings
from wattkeeper.scenarios.report.markup import build_table, tag
from wattkeeper.scenarios.report.phrases import (
    WORDS,
    name_baseline,
    signed_change,
    typeset_minus,
    variant_label,
)

PARTS = {"workload": "workload", "gpu_type": "GPU type"}
"""Breakdowns of which the page shows one, and their titles."""

VERDICTS = {
    "lower": "the 95 % interval of the change lies below 0 %",
    "higher": "the 95 % interval of the change lies above 0 %",
    "noise": "the 95 % interval includes 0 %, so chance may explain the difference",
    "identical": "equal with every seed",
    "one seed": "no interval can be given",
}
"""Meaning of the verdicts on a difference."""

NEEDLESS = "no interval is needed, since nothing is drawn at random"
JUDGED = {"lower", "higher", "noise"}
ALONE = (
    " Each verdict is of one difference alone, at 95 % and unadjusted for their number: of twenty "
    "differences by chance, about one is marked lower or higher (wattkeeper compare, of two "
    "folders, adjusts: Holm)."
)
"""Remark on verdicts that rest on an interval."""

SCALES = (
    "Small charts: the change and its interval, on a scale of each column's own; an arrow stands "
    "for a change beyond it, which is far larger than the others."
)
"""What the charts in cells show."""

OUTLIER = 4
"""A change that is this many times the second largest is drawn as an arrow at the edge."""

MOST_PARTS = 400
"""Rows of the table by workload."""


def explain_verdicts(summaries: Iterable[Json], random: bool = True) -> Iterator[str]:
    """The meaning of the verdicts that occur in summaries; `random`: whether anything is drawn."""
    verdicts = {
        versus["verdict"]
        for summary in summaries
        if "saved" not in summary
        for about in summary["variants"].values()
        for versus in about["versus"].values()
        if isinstance(versus, Mapping) and versus.get("verdict")
    }
    known = VERDICTS if random else VERDICTS | {"one seed": NEEDLESS}
    meanings = [f"{name}: {text}" for name, text in known.items() if name in verdicts]
    if meanings:
        yield f"Marks: {'; '.join(meanings)}.{ALONE if verdicts & JUDGED else ''}"


def variant_table(summary: Json) -> Element:
    """The metrics of each variant, and their changes against the baseline."""
    if "saved" in summary:
        return zoo_savings.build_table(summary)
    heads = shown_metrics(summary)
    spans = {metric: _largest_change(metric, summary) for metric in heads}
    if "cost" in heads:
        heads["regret"] = "regret"
    rows = []
    for name, about in summary["variants"].items():
        cells = [tag("th", variant_label(name, summary), name_baseline(name, summary), scope="row")]
        cells += [
            value_cell(name, about, metric, title, spans.get(metric, 0.0))
            for metric, title in heads.items()
        ]
        rows.append(tag("tr", *cells))
    return build_table(("variant", *heads.values()), rows, class_="cards")


def value_cell(
    name: str, about: Json, metric: str, title: str, span: float | None = None
) -> Element:
    """A value, its change against the baseline, and the verdict on the change.

    `span` is the largest change that a chart of it has room for: 0 leaves out the change, None the
    chart alone.
    """
    mean = about["metrics"].get(metric, {}).get("mean")
    content: list[Element | None] = [tag("b", typeset_minus(format_value(mean, metric)))]
    versus = about["versus"].get(metric) if metric not in SHARES else None
    compared = about["versus"]["baseline"] != name and span != 0
    if compared and versus and versus["ratio"] is not None:
        change, _, interval = signed_change(versus).partition(" [")
        bounds = tag("span", f"[{interval}", class_="change") if interval else None
        content += [tag("span", change, class_="change"), bounds, _badge(versus)]
        content.append(_whisker(versus, span) if span else None)
    return tag("td", *content, data_label=title)


def _badge(versus: Json) -> Element | None:
    """The verdict on a difference, with its effect size as a tooltip where that is known."""
    verdict, effect = versus.get("verdict"), versus.get("effect")
    if verdict is None:
        return None
    badge = tag("span", verdict, class_=f"badge {verdict.replace(' ', '-')}")
    if effect is not None:
        badge.set("title", f"effect size {effect:.2f}: mean difference over standard deviation")
    return badge


def _largest_change(metric: str, summary: Json) -> float:
    """The largest change of any variant, its interval included; less where one is an outlier."""
    sizes = [0.0]
    for about in summary["variants"].values():
        versus = about["versus"].get(metric) or {}
        if versus.get("ratio") is not None:
            bounds = versus["ci95"] or [versus["ratio"]]
            sizes.append(max(abs(bound - 1) for bound in (*bounds, versus["ratio"])))
    sizes.sort()
    usual = sizes[-2] if len(sizes) > 2 else 0.0
    return min(sizes[-1], OUTLIER * usual) if usual else sizes[-1]


def _whisker(versus: Json, span: float) -> Element:
    """The change and its interval as an inline chart; the middle line is the baseline."""

    def x(ratio: float) -> float:
        return round(60 + 54 * max(-1.0, min(1.0, (ratio - 1) / span)), 2)

    beyond = abs(versus["ratio"] - 1) > span
    dot = tag("circle", cx=x(versus["ratio"]), cy=7, r=4, class_="dot")
    if beyond:
        tip = 6 if versus["ratio"] > 1 else -6
        end = x(versus["ratio"])
        dot = tag("path", d=f"M{end - tip} 2 L{end} 7 L{end - tip} 12 Z", class_="dot")
    low, high = versus["ci95"] or (versus["ratio"], versus["ratio"])
    return tag(
        "svg",
        tag("line", x1=60, y1=0, x2=60, y2=14, class_="zero"),
        tag("line", x1=x(low), y1=7, x2=x(high), y2=7, class_="range"),
        dot,
        viewBox="0 0 120 14",
        class_="whisker",
        aria_hidden="true",
    )


def parts_table(summary: Json, window: LearningWindow) -> tuple[str, Element] | None:
    """Title and table of the changes by workload or GPU type; None without several of either."""
    if "saved" in summary:
        return None
    key = next((key for key in PARTS if len(summary["by"][key]) > 1), None)
    if key is None:
        return None
    title = PARTS[key]
    shown = {metric: name for metric, name in shown_metrics(summary).items() if metric in WORDS}
    for undivided in ("cluster_energy_j", "gpu_s_saved"):
        shown.pop(undivided, None)
    if summary["by"]["workload"] and window.longer:
        last = "last5_energy_j" if knows_energy(summary) else "last5_time_s"
        shown[last] = f"{'energy' if last == 'last5_energy_j' else 'time'} after learning"
    rows = []
    for part, variants in summary["by"][key].items():
        others = {
            name: about for name, about in variants.items() if about["versus"]["baseline"] != name
        }
        head = [tag("th", part, rowspan=len(others), scope="rowgroup")]
        for name, about in others.items():
            cells = [_part_cell(about, metric, label) for metric, label in shown.items()]
            row_head = tag(
                "th", variant_label(name, summary), name_baseline(name, summary), scope="row"
            )
            rows.append(tag("tr", *head, row_head, *cells))
            head = []
    if not rows:
        return None
    caption = f"The first {MOST_PARTS} of {len(rows)} rows." * (len(rows) > MOST_PARTS)
    table = build_table((title, "variant", *shown.values()), rows[:MOST_PARTS], caption)
    return title, tag("div", table, class_="scroll")


def _part_cell(about: Json, metric: str, label: str) -> Element:
    versus = about["versus"].get(metric) or {}
    if versus.get("ratio") is None:
        return tag("td", "-", data_label=label)
    change, _, interval = signed_change(versus).partition(" [")
    bounds = tag("span", f"[{interval}", class_="change") if interval else None
    return tag("td", tag("b", change), bounds, _badge(versus), data_label=label)

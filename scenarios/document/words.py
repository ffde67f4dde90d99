"""Parts of sentences and cells: variants, changes and lists in words."""

from collections.abc import Iterable, Sequence

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import SHARES, format_value, own_baselines
from wattkeeper.scenarios.document.blocks import Cell, Name, Small, Span, Text, Whisker
from wattkeeper.scenarios.spec.wording import percent
from wattkeeper.sim.cluster_results.registry import METRICS

FUTURE = " (knows the future: a bound)"
"""Remark on a variant whose policy is an oracle."""


def name_of(variant: str, names: Sequence[str]) -> Name:
    """The name of a variant with its colour; `names` are those of all, in their order."""
    return Name(variant, names.index(variant))


def label_row(variant: str, summary: Json) -> Text:
    """The head of a variant's row: that it is the baseline, or its own one if there are several."""
    variants = summary["variants"]
    name = name_of(variant, list(variants))
    if variants[variant]["versus"]["baseline"] == variant:
        return (name, Small("baseline")) if len(variants) > 1 else (name,)
    baseline = own_baselines(variants).get(variant)
    return (name, Small(f"against {baseline}")) if baseline else (name,)


def describe_change(metric: str, versus: Json) -> tuple[str, str]:
    """A change in words, as `23.1 % less`, and its interval in the same direction, or empty."""
    below, above = METRICS[metric].words
    ratio, interval = versus["ratio"], versus["ci95"]
    sign = -1 if ratio < 1 else 1
    text = f"{unsigned(sign * (ratio - 1))} % {below if ratio < 1 else above}"
    if not interval or interval[0] == interval[1]:
        return text, ""
    low, high = sorted(sign * (bound - 1) for bound in interval)
    return text, f"[{unsigned(low)}, {unsigned(high)}]"


def unsigned(share: float) -> str:
    """A share in per cent without a plus sign."""
    return percent(share).removeprefix("+")


def signed_change(versus: Json) -> tuple[str, str]:
    """A change as a number and its interval, as `-23.1 %` and `[-30.0, -16.2]`."""
    interval = versus["ci95"]
    bounds = ""
    if interval and interval[0] != interval[1]:
        bounds = f"[{', '.join(percent(bound - 1) for bound in interval)}]"
    return f"{percent(versus['ratio'] - 1)} %", bounds


def compare_cell(
    name: str, about: Json, metric: str, span: float | None = 0.0, *, with_value: bool = True
) -> Cell:
    """A value, its change against the baseline, and what can be said of the change.

    `span` is the largest change that a chart of it has room for: 0 leaves out the chart, None the
    change, too.
    """
    value = format_value(about["metrics"].get(metric, {}).get("mean"), metric)
    versus = (about["versus"].get(metric) or {}) if metric not in SHARES else {}
    is_compared = about["versus"]["baseline"] != name and span is not None
    if not is_compared or versus.get("ratio") is None:
        return Cell((value if with_value else "-",))
    change, bounds = signed_change(versus)
    mark = None
    if span:
        low, high = (bound - 1 for bound in versus["ci95"] or [versus["ratio"]] * 2)
        mark = Whisker(versus["ratio"] - 1, low, high, span)
    verdict, effect = versus.get("verdict") or "", versus.get("effect")
    if not with_value:
        return Cell((change,), "", bounds, verdict, effect, mark)
    return Cell((value,), change, bounds, verdict, effect, mark)


def join_list(items: Iterable[Text], last: str = "and") -> list[Span]:
    """Items joined by commas and `and`."""
    listed = list(items)
    joined: list[Span] = []
    for index, item in enumerate(listed):
        joined += [", " if index < len(listed) - 1 else f" {last} "] if index else []
        joined += item
    return joined

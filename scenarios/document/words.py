"""Parts of sentences and cells: variants, what they do, changes and lists in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wattkeeper.policies.json_types import Json
from wattkeeper.policies.parts import find_part
from wattkeeper.policies.registry import POINTS, Point
from wattkeeper.scenarios.analysis.resolved.policy_kinds import policy_configs, policy_kind
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


def describe_action(scenario: Json, variant: str, names: list[str]) -> Text:
    """What a variant does, as the subject of a sentence that ends in its name.

    Its name alone where it changes several things, or one that has no plain words.
    """
    name = name_of(variant, names)
    phrases = list(_phrases(scenario, variant))
    if len(phrases) != 1 or not phrases[0]:
        return (name,)
    phrase = phrases[0][:1].upper() + phrases[0][1:]
    if phrase.lower() == variant.lower():
        return (Name(phrase, name.number),)
    return f"{phrase} (", name, ")"


def _phrases(scenario: Json, variant: str) -> Iterator[str]:
    """A phrase for each thing that a variant changes; empty for those without plain words."""
    own = scenario["variants"][variant]
    baseline = own.get("baseline") or scenario["baseline"]
    for key in ("workload", "objective", "electricity", "zoo", "occupancy"):
        if own.get(key) != scenario["variants"][baseline].get(key):
            yield ""
    if _cluster(scenario, variant) != _cluster(scenario, baseline):
        yield _describe_cluster(_cluster(scenario, baseline), _cluster(scenario, variant))
    changed = [
        point
        for point in POINTS
        if policy_configs(scenario, variant, point) != policy_configs(scenario, baseline, point)
    ]
    if "configure" in changed and "tune" in changed:
        changed.remove("tune")  # a bandit of batch sizes brings its own limits
    for point in changed:
        yield _describe_policy(scenario, variant, point)


def _cluster(scenario: Json, variant: str) -> Json:
    cluster: Json = scenario["variants"][variant].get("cluster") or scenario["cluster"]
    return cluster


def _describe_cluster(usual: Json, own: Json) -> str:
    if (
        usual | {"sleep": None} == own | {"sleep": None}
        and own.get("sleep")
        and not usual.get("sleep")
    ):
        return "Letting idle nodes sleep"
    return ""


def _describe_policy(scenario: Json, variant: str, point: Point) -> str:
    configs = policy_configs(scenario, variant, point)
    if len(configs) != 1:
        return ""
    stated, kind = configs[0], configs[0]["kind"]
    match kind:
        case "power-fraction":
            return f"A power limit of {100 * stated['fraction']:g} % of the highest"
        case "fixed-power":
            return f"A power limit of {stated['power_limit_w']:g} W"
    words = plain_name(point, kind)
    return f"Scheduling {words}" if words and point == "select" else words


def plain_name(point: Point, kind: str) -> str:
    """What a policy does in plain words; empty where it has none."""
    part = find_part(point, kind)
    return "" if part is None else str(getattr(part, "plain", ""))


def scheduler_words(scenario: Json, variant: str) -> str:
    """The scheduler of a variant in plain words; empty where it has none."""
    kind = policy_kind(scenario, variant, "select") or "fifo"
    return plain_name("select", kind)

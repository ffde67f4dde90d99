"""Section of a page on who pays with time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.times.job_times import JobTimes, Loser, RunTimes, TimesPart
from wattkeeper.scenarios.analysis.vocabulary import format_value, own_baselines
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.markup import build_table, tag
from wattkeeper.scenarios.report.phrases import name_baseline, typeset_minus, variant_label
from wattkeeper.scenarios.spec.case_names import base_of, case_name
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.describe.waits import label_part
from wattkeeper.traces.gpus.model import BOUNDNESS

LEAST_S: Final = 60.0
"""Mean extra time of a size class that is worth a sentence, s."""
TIMES_NOTE: Final = (
    "Time of a job: from submission to end, wait and run. Baseline: mean and 95th percentile of "
    "these jobs; the others: how much longer (+) or shorter (−) both are. Cases: range of the mean."
)


def describe_hardest_hit(times: JobTimes, variant: str) -> str:
    """Which size class takes how much longer, if one loses more than all jobs do; else empty."""
    whole, *sizes = (part for part in times["parts"] if part["by"] != "queue")
    if variant not in whole["runs"] or len(sizes) < 2:
        return ""
    own, high = variant, case_name(variant, "high")
    judged = high if high in whole["runs"] else own
    hardest = max(sizes, key=lambda part: part["runs"][judged]["extra_mean_s"])
    bounds = [
        hardest["runs"][name]["extra_mean_s"] for name in (own, high) if name in hardest["runs"]
    ]
    most_s = max(bounds)
    if most_s < max(LEAST_S, whole["runs"][own]["extra_mean_s"]):
        return ""
    longer = f"{format_value(most_s, 'jct_s')} longer on average"
    if bounds[0] < LEAST_S:
        return f"jobs on {hardest['part']} take up to {longer} over the cases"
    if most_s > bounds[0]:
        middle = format_value(bounds[0], "jct_s")
        longer = (
            f"{middle} longer on average (up to {format_value(most_s, 'jct_s')} over the cases)"
        )
    return f"jobs on {hardest['part']} take {longer}"


def times_section(manifest: Manifest, summary: Json) -> Element | None:
    """Extra time of jobs by size, queue and user; None where nothing can be compared."""
    times = manifest.get("job_times")
    if times is None:
        return None
    baseline = manifest["scenario"]["baseline"]
    runs = times["parts"][0]["runs"]
    variants = [name for name in runs if name != baseline and base_of(name) not in runs]
    if baseline not in runs or not variants:
        return None
    sizes, queues = (
        [part for part in times["parts"] if (part["by"] == "queue") == is_queue]
        for is_queue in (False, True)
    )
    more = [_build_parts(queues, baseline, variants, summary)] * bool(queues)
    more += _build_losers(times, variants, summary)
    title = " and ".join(["queue"] * bool(queues) + [times["owner"]] * bool(times["owner"]))
    has_own = bool(own_baselines(summary["variants"]))
    usual = "their baselines" if has_own else variant_label(baseline, summary)
    return tag(
        "section",
        tag("h2", "Who pays with time, against ", usual),
        _build_parts(sizes, baseline, variants, summary),
        *markup.notes([TIMES_NOTE]),
        tag("details", tag("summary", f"By {title}"), *more) if more else None,
        id="times",
    )


def _build_parts(
    parts: Sequence[TimesPart], baseline: str, variants: Sequence[str], summary: Json
) -> Element:
    """The baseline's times, then a row for each variant; a column for each part of the jobs."""
    heads = [label_part(part["by"], part["part"]).removeprefix("queue ") for part in parts]
    titles = [f"{head} ({part['jobs']:,})" for head, part in zip(heads, parts, strict=True)]
    rows = [
        tag(
            "tr",
            tag("th", variant_label(baseline, summary), tag("small", "baseline"), scope="row"),
            *(
                _build_usual(part["runs"][baseline], title)
                for part, title in zip(parts, titles, strict=True)
            ),
        )
    ]
    for name in variants:
        cells = [
            _build_cell(part["runs"], name, title)
            for part, title in zip(parts, titles, strict=True)
        ]
        rows.append(
            tag(
                "tr",
                tag("th", variant_label(name, summary), name_baseline(name, summary), scope="row"),
                *cells,
            )
        )
    table = build_table(("jobs (number)", *titles), rows, class_="cards")
    return tag("div", table, class_="scroll")


def _build_usual(usual: RunTimes, title: str) -> Element:
    """The times of the baseline: mean and 95th percentile."""
    p95 = f"95 %: {format_value(usual['p95_s'], 'jct_s')}"
    mean = tag("b", format_value(usual["mean_s"], "jct_s"))
    return tag("td", mean, tag("span", p95, class_="change"), data_label=title)


def _build_cell(runs: Mapping[str, RunTimes], name: str, title: str) -> Element:
    """The extra time of a variant: mean, 95th percentile, and the mean over its cases."""
    own = runs[name]
    cases = [case_name(name, case) for case in BOUNDNESS if case_name(name, case) in runs]
    means = [runs[case]["extra_mean_s"] for case in (name, *cases)]
    bounds = [_format_extra(bound) for bound in (min(means), max(means))]
    over = f"cases: {' to '.join(bounds)}" if len(set(bounds)) > 1 else None
    lines = [f"95 %: {_format_extra(own['extra_p95_s'])}", over]
    return tag(
        "td",
        tag("b", typeset_minus(_format_extra(own["extra_mean_s"]))),
        *(tag("span", typeset_minus(line), class_="change") for line in lines if line),
        data_label=title,
    )


def _build_losers(times: JobTimes, variants: Sequence[str], summary: Json) -> Iterator[Element]:
    """The users whose jobs lose most time under each variant."""
    rows = []
    for name in variants:
        losers = times["losers"].get(name, [])
        text = ", ".join(map(_describe_loser, losers)) or "none"
        rows.append(
            tag(
                "tr",
                tag("th", variant_label(name, summary), name_baseline(name, summary), scope="row"),
                tag("td", text, class_="who", data_label=times["owner"]),
            )
        )
    if times["owner"]:
        title = f"{times['owner']}s who lose most, over all their jobs"
        yield build_table(("variant", title), rows, class_="cards losers")


def _describe_loser(loser: Loser) -> str:
    extra = _format_extra(loser["extra_s"])
    return f"{loser['name']} {extra} ({count(loser['jobs'], 'job')})"


def _format_extra(extra_s: float) -> str:
    """A difference of times with its sign."""
    if abs(extra_s) < 0.5:
        return "0"
    return f"{'+' if extra_s > 0 else '-'}{format_value(abs(extra_s), 'jct_s')}"

"""Times of jobs: who waits or runs for longer, and how far waits are those of the record."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.logged.waits import SAME_S, WaitPart
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.resolved.policy_kinds import (
    RECORDED,
    knows_run_times,
    list_schedulers,
    policy_kind,
)
from wattkeeper.scenarios.analysis.times.job_times import JobTimes, Loser, RunTimes, TimesPart
from wattkeeper.scenarios.analysis.vocabulary import format_value, own_baselines
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import (
    Block,
    Cell,
    Chapter,
    Fold,
    Paragraph,
    Table,
    TableRow,
)
from wattkeeper.scenarios.document.words import label_row, name_of
from wattkeeper.scenarios.spec.case_names import base_of, case_name
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.describe.waits import WaitStatistics, label_part
from wattkeeper.traces.gpus.model import BOUNDNESS

TIMES_NOTE: Final = (
    "Time of a job: from submission to end, wait and run. Baseline: mean and 95th percentile of "
    "these jobs; the others: how much longer (+) or shorter (-) both are. Cases: range of the mean."
)

FIRST_SENTENCES: Final = 2
"""Sentences on the record that stand beside the answer; the others stand in the section."""


FAR: Final = 1.5
"""Ratio of mean waits above which a run does not reproduce the record."""
FAR_S: Final = 60.0
"""Difference of mean waits above which their ratio counts, s."""

HEADS: Final = (
    "jobs",
    "number",
    "recorded mean",
    "recorded median",
    "recorded 95 %",
    "simulated mean",
    "simulated median",
    "simulated 95 %",
    "median difference",
)
"""Titles of the columns of `rows_by_part`."""


CLOSENESS_HEADS: Final = (
    "scheduler",
    "mean wait",
    "median wait",
    "95 %",
    "median difference",
    "mean difference",
    "as recorded",
)
"""Titles of the columns of `rows_by_scheduler`."""
WAITS_NOTE: Final = (
    "Wait: from submission to start. Differences: of a job's simulated wait from its recorded one. "
    f"As recorded: share of jobs that start within {SAME_S:g} s of their recorded start."
)


def times_section(manifest: Manifest, summary: Json) -> Chapter | None:
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
    more: list[Block] = [_parts(queues, baseline, variants, summary)] * bool(queues)
    more += _losers(times, variants, summary)
    title = " and ".join(["queue"] * bool(queues) + [times["owner"]] * bool(times["owner"]))
    names = list(summary["variants"])
    usual = "their baselines" if own_baselines(summary["variants"]) else name_of(baseline, names)
    content: list[Block] = [_parts(sizes, baseline, variants, summary), *blocks.notes([TIMES_NOTE])]
    content += [Fold(f"By {title}", more)] * bool(more)
    return Chapter("times", ("Who pays with time, against ", usual), content, "page")


def _parts(
    parts: Sequence[TimesPart], baseline: str, variants: Sequence[str], summary: Json
) -> Table:
    """The baseline's times, then a row for each variant; a column for each part of the jobs."""
    heads = [label_part(part["by"], part["part"]).removeprefix("queue ") for part in parts]
    titles = [f"{head} ({part['jobs']:,})" for head, part in zip(heads, parts, strict=True)]
    usual = [_usual(part["runs"][baseline]) for part in parts]
    rows = [
        TableRow((name_of(baseline, list(summary["variants"])), blocks.Small("baseline")), usual)
    ]
    rows += [
        TableRow(label_row(name, summary), [_extra(part["runs"], name) for part in parts])
        for name in variants
    ]
    return Table(blocks.heads("jobs (number)", *titles), rows)


def _usual(usual: RunTimes) -> Cell:
    """The times of the baseline: mean and 95th percentile."""
    mean, p95 = (format_value(usual[key], "jct_s") for key in ("mean_s", "p95_s"))
    return Cell((mean,), f"95 %: {p95}")


def _extra(runs: Mapping[str, RunTimes], name: str) -> Cell:
    """The extra time of a variant: mean, 95th percentile, and the mean over its cases."""
    own = runs[name]
    cases = [case_name(name, case) for case in BOUNDNESS if case_name(name, case) in runs]
    means = [runs[case]["extra_mean_s"] for case in (name, *cases)]
    bounds = [_format_extra(bound) for bound in (min(means), max(means))]
    over = f"cases: {' to '.join(bounds)}" if len(set(bounds)) > 1 else ""
    return Cell(
        (_format_extra(own["extra_mean_s"]),), f"95 %: {_format_extra(own['extra_p95_s'])}", over
    )


def _losers(times: JobTimes, variants: Sequence[str], summary: Json) -> Iterator[Table]:
    """The users whose jobs lose most time under each variant."""
    if not times["owner"]:
        return
    rows = [
        TableRow(
            label_row(name, summary),
            [Cell((", ".join(map(_describe_loser, times["losers"].get(name, []))) or "none",))],
        )
        for name in variants
    ]
    title = f"{times['owner']}s who lose most, over all their jobs"
    yield Table(blocks.heads("variant", title), rows, texts=True)


def _describe_loser(loser: Loser) -> str:
    extra = _format_extra(loser["extra_s"])
    return f"{loser['name']} {extra} ({count(loser['jobs'], 'job')})"


def _format_extra(extra_s: float) -> str:
    """A difference of times with its sign."""
    if abs(extra_s) < 0.5:
        return "0"
    return f"{'+' if extra_s > 0 else '-'}{format_value(abs(extra_s), 'jct_s')}"


def compare_with_record(manifest: Manifest) -> Iterator[Paragraph]:
    """How far the baseline reproduces the record: a caution if it is far, else a note."""
    parts, baseline = _recorded(manifest)
    if parts:
        lines = list(describe_waits(parts, baseline, manifest["scenario"]))
        text = (" ".join(lines[:FIRST_SENTENCES]),)
        yield Paragraph("caution" if is_far(parts[0], baseline) else "note", text)


def waits_section(manifest: Manifest, summary: Json) -> Chapter | None:
    """Recorded and simulated waits; None where the trace has no recorded starts."""
    scenario = manifest["scenario"]
    parts, baseline = _recorded(manifest)
    if not parts:
        return None
    sentences = list(describe_waits(parts, baseline, scenario))
    return Chapter(
        "waits",
        ("Waits of each scheduler, and the record",),
        [
            blocks.text_table(CLOSENESS_HEADS, rows_by_scheduler(parts, scenario)),
            *blocks.notes([WAITS_NOTE, *sentences[FIRST_SENTENCES:]]),
            blocks.text_table(
                HEADS,
                rows_by_part(parts, baseline),
                f"Recorded waits, and simulated ones of {baseline}",
            ),
        ],
        "screens",
    )


def _recorded(manifest: Manifest) -> tuple[Sequence[WaitPart], str]:
    """Waits of the parts of the jobs, with the baseline's; empty where there is no record."""
    parts, baseline = manifest.get("waits"), manifest["scenario"]["baseline"]
    return (parts, baseline) if parts and baseline in parts[0]["runs"] else ((), baseline)


def describe_waits(parts: Sequence[WaitPart], baseline: str, scenario: Json) -> Iterator[str]:
    """How far the baseline reproduces the record, and where the record itself was impossible."""
    yield from describe_closeness(parts, baseline)
    replays = [
        name
        for name in (baseline, *parts[0]["runs"])
        if policy_kind(scenario, name, "select") == RECORDED
    ]
    late = 0
    if replays:
        run = parts[0]["runs"][replays[0]]
        late = round((1 - run["as_recorded"]) * parts[0]["jobs"])
    if late:
        delay = _format(run["mean_difference_s"] * parts[0]["jobs"] / late)
        yield (
            f"Not all of the record fits the described nodes: {count(late, 'job')} had no place "
            "there at the recorded start, and started "
            f"{delay} later on average (variant {replays[0]})."
        )


def describe_closeness(parts: Sequence[WaitPart], variant: str) -> Iterator[str]:
    """How far a variant reproduces the recorded waits, in sentences."""
    whole = parts[0]
    recorded, run = whole["recorded"], whole["runs"][variant]
    yield (
        f"Recorded waits of {count(whole['jobs'], 'job')}: {_format_waits(recorded)}. Simulated "
        f"({variant}): {_format_waits(run)}."
    )
    if is_far(whole, variant):
        more = "longer" if run["mean_s"] > recorded["mean_s"] else "shorter"
        yield f"The simulation does not reproduce the record: mean waits are much {more}."
        yield (
            "The log does not say what else held jobs back or let them pass, such as priorities, "
            "reservations, limits of users, or nodes that were down or added."
        )


def is_far(part: WaitPart, variant: str) -> bool:
    """Whether a variant's mean wait is far from the recorded one."""
    low, high = sorted((part["recorded"]["mean_s"], part["runs"][variant]["mean_s"]))
    return high > FAR * low and high - low > FAR_S


def rows_by_scheduler(parts: Sequence[WaitPart], scenario: Json) -> Iterator[tuple[str, ...]]:
    """A row for the record, and one for each scheduler: its waits, and how close they come."""
    whole = parts[0]
    yield "the record", *_format_statistics(whole["recorded"]), "", "", ""
    for name in list_schedulers(scenario):
        if name in whole["runs"]:
            run = whole["runs"][name]
            label = f"{name}, the baseline" if name == scenario["baseline"] else name
            if knows_run_times(scenario, name):
                label += " (knows run times in advance)"
            differences = run["median_difference_s"], run["mean_difference_s"]
            share = f"{100 * run['as_recorded']:.0f} %"
            yield label, *_format_statistics(run), *map(_format, differences), share


def rows_by_part(parts: Sequence[WaitPart], variant: str) -> Iterator[tuple[str, ...]]:
    """A row for each part: its jobs, recorded and simulated waits, and their median difference."""
    for part in parts:
        recorded, run = part["recorded"], part["runs"][variant]
        waits = (*_format_statistics(recorded), *_format_statistics(run))
        label = label_part(part["by"], part["part"])
        yield label, f"{part['jobs']:,}", *waits, _format(run["median_difference_s"])


def _format_statistics(waits: WaitStatistics) -> Iterator[str]:
    return map(_format, (waits["mean_s"], waits["median_s"], waits["p95_s"]))


def _format_waits(waits: WaitStatistics) -> str:
    return (
        f"mean {_format(waits['mean_s'])}, median {_format(waits['median_s'])}, 95th "
        f"percentile {_format(waits['p95_s'])}"
    )


def _format(wait_s: float) -> str:
    return format_value(wait_s, "queue_delay_s")

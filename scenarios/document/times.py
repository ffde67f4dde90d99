"""Who pays with time: extra time of jobs by size, queue and user; and recorded waits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.logged.waits import WaitPart
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.times.job_times import JobTimes, Loser, RunTimes, TimesPart
from wattkeeper.scenarios.analysis.vocabulary import format_value, own_baselines
from wattkeeper.scenarios.document import blocks, waits
from wattkeeper.scenarios.document.blocks import Block, Cell, Fold, Paragraph, Row, Section, Table
from wattkeeper.scenarios.document.words import label_row, name_of
from wattkeeper.scenarios.spec.case_names import base_of, case_name
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.describe.waits import label_part
from wattkeeper.traces.gpus.model import BOUNDNESS

TIMES_NOTE: Final = (
    "Time of a job: from submission to end, wait and run. Baseline: mean and 95th percentile of "
    "these jobs; the others: how much longer (+) or shorter (-) both are. Cases: range of the mean."
)

FIRST_SENTENCES: Final = 2
"""Sentences on the record that stand beside the answer; the others stand in the section."""


def times_section(manifest: Manifest, summary: Json) -> Section | None:
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
    return Section("times", ("Who pays with time, against ", usual), content, "page")


def _parts(
    parts: Sequence[TimesPart], baseline: str, variants: Sequence[str], summary: Json
) -> Table:
    """The baseline's times, then a row for each variant; a column for each part of the jobs."""
    heads = [label_part(part["by"], part["part"]).removeprefix("queue ") for part in parts]
    titles = [f"{head} ({part['jobs']:,})" for head, part in zip(heads, parts, strict=True)]
    usual = [_usual(part["runs"][baseline]) for part in parts]
    rows = [Row((name_of(baseline, list(summary["variants"])), blocks.Small("baseline")), usual)]
    rows += [
        Row(label_row(name, summary), [_extra(part["runs"], name) for part in parts])
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
        Row(
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


def describe_closeness(manifest: Manifest) -> Iterator[Paragraph]:
    """How far the baseline reproduces the record: a caution if it is far, else a note."""
    parts, baseline = _recorded(manifest)
    if parts:
        lines = list(waits.describe_waits(parts, baseline, manifest["scenario"]))
        text = (" ".join(lines[:FIRST_SENTENCES]),)
        yield Paragraph("caution" if waits.is_far(parts[0], baseline) else "note", text)


def waits_section(manifest: Manifest, summary: Json) -> Section | None:
    """Recorded and simulated waits; None where the trace has no recorded starts."""
    scenario = manifest["scenario"]
    parts, baseline = _recorded(manifest)
    if not parts:
        return None
    sentences = list(waits.describe_waits(parts, baseline, scenario))
    return Section(
        "waits",
        ("Waits of each scheduler, and the record",),
        [
            blocks.text_table(waits.CLOSENESS_HEADS, waits.rows_by_scheduler(parts, scenario)),
            *blocks.notes([waits.WAITS_NOTE, *sentences[FIRST_SENTENCES:]]),
            blocks.text_table(
                waits.HEADS,
                waits.rows_by_part(parts, baseline),
                f"Recorded waits, and simulated ones of {baseline}",
            ),
        ],
        "screens",
    )


def _recorded(manifest: Manifest) -> tuple[Sequence[WaitPart], str]:
    """Waits of the parts of the jobs, with the baseline's; empty where there is no record."""
    parts, baseline = manifest.get("waits"), manifest["scenario"]["baseline"]
    return (parts, baseline) if parts and baseline in parts[0]["runs"] else ((), baseline)

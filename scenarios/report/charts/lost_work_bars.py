"""Bars and figures of useful and lost work by variant, where nodes are lost."""

from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.texts.losses import count_losses
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.charts.lost_work import find_losing, read_work
from wattkeeper.scenarios.report.charts.stacked_bars import BarPart, build_bars, format_figure
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.electricity.charges import JOULES_PER_KWH

GPU_TIMES: Final = (
    ("GPU\N{NO-BREAK SPACE}h", 3600.0),
    ("GPU\N{NO-BREAK SPACE}min", 60.0),
    ("GPU\N{NO-BREAK SPACE}s", 1.0),
)
KWH: Final = (("kWh", JOULES_PER_KWH),)

PARTS: Final = {
    "useful": BarPart("useful", "--soft"),
    "overhead": BarPart("checkpoints and recovery", "--v1"),
    "slow": BarPart("slow nodes", "--v3"),
    "unended": BarPart("jobs that never ended", "--v4"),
    "lost": BarPart("lost", "--v2"),
}
"""Parts of `Work` in the order of a bar."""

WITH_OVERHEAD: Final = "useful, checkpoints and recovery"
"""What the energy of useful training is recorded together with."""

MEANINGS: Final = {
    "useful": "training that counts towards the end of its job, failed tries included",
    "overhead": "GPUs held without training: while a checkpoint that blocks is written, while one "
    "is read, and for waking, restoring and waiting for power where there is any",
    "slow": "by how much training takes longer beside slow nodes",
    "unended": "training that was not lost, of jobs whose last attempt ended with a node",
    "lost": "training since the last checkpoint when a node went down",
}


def losses_section(study: Study) -> Element | None:
    """Bars and figures by variant; None where no node is lost."""
    losing = find_losing(study)
    works = read_work(study) if losing else {}
    if not works:
        return None
    gpu_time = {name: work.gpu_s._asdict() for name, work in works.items()}
    tables = [build_bars("GPU time", gpu_time, PARTS, GPU_TIMES, study.summary, _count_jobs)]
    energy = {
        name: work.energy_j._asdict() for name, work in works.items() if work.energy_j is not None
    }
    if len(energy) == len(works):
        parts = PARTS | {"useful": PARTS["useful"]._replace(label=WITH_OVERHEAD)}
        tables.append(build_bars("energy", energy, parts, KWH, study.summary, _count_jobs))
    lines = [_describe_scope(study, [name for name in works if name not in losing])]
    lines.append(
        "; ".join(
            f"{part.label}: {MEANINGS[name]}"
            for name, part in PARTS.items()
            if any(work[name] for work in gpu_time.values())
        )
        + "."
    )
    if len(tables) > 1:
        lines.append(
            "Energy is that of GPUs while jobs hold them, without PUE; that of checkpoints and "
            "recovery is not recorded apart. Free GPUs are not in it."
        )
    lines += count_losses(study.summary)
    heading = tag("h2", "Useful and lost work")
    return tag("section", heading, *tables, *markup.notes(lines), id="losses")


def _count_jobs(variant: str, summary: Json) -> Element:
    """How many jobs ran in which time."""
    metrics = summary["variants"][variant]["metrics"]
    jobs, span_s = metrics["jobs"]["mean"], metrics["makespan_s"]["mean"]
    text = f"{count(round(jobs), 'job')} in {format_figure(span_s / 3600)}\N{NO-BREAK SPACE}h"
    unable = metrics.get("unable_jobs", {}).get("mean")
    return tag("small", text + (f"; {format_figure(unable)} of all never ended" if unable else ""))


def _describe_scope(study: Study, lossless: Sequence[str]) -> str:
    """Which jobs and which time the figures are of."""
    seeds = len(study.manifest["seeds"])
    return (
        "All attempts of all jobs that ran, from the first submission to the last end in each "
        "variant: below its name, how many jobs ran and how long that took"
        + f"; means over {seeds} seeds" * (seeds > 1)
        + "."
        + f" No node is lost in {', '.join(map(repr, lossless))}." * bool(lossless)
    )

"""What losses of nodes cost ordinary and elastic jobs: sentences, bars and figures."""

from collections.abc import Iterator, Sequence
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.lost_work import find_losing, read_work
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import read_means
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.bars import BarPart, bars_table, format_figure
from wattkeeper.scenarios.document.blocks import Chapter
from wattkeeper.scenarios.spec.wording import count, merge_names
from wattkeeper.traces.electricity.charges import JOULES_PER_KWH

GPU_TIMES: Final = (
    ("GPU\N{NO-BREAK SPACE}h", 3600.0),
    ("GPU\N{NO-BREAK SPACE}min", 60.0),
    ("GPU\N{NO-BREAK SPACE}s", 1.0),
)
KWH: Final = (("kWh", JOULES_PER_KWH),)

BARS: Final = {
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


def losses_section(study: Study) -> Chapter | None:
    """Bars and figures of useful and lost work by variant; None where no node is lost."""
    losing = find_losing(study)
    works = read_work(study) if losing else {}
    if not works:
        return None
    gpu_time = {name: work.gpu_s._asdict() for name, work in works.items()}
    tables = [bars_table("GPU time", gpu_time, BARS, GPU_TIMES, study.summary, _count_jobs)]
    energy = {
        name: work.energy_j._asdict() for name, work in works.items() if work.energy_j is not None
    }
    if len(energy) == len(works):
        parts = BARS | {"useful": BARS["useful"]._replace(label=WITH_OVERHEAD)}
        tables.append(bars_table("energy", energy, parts, KWH, study.summary, _count_jobs))
    lines = [_describe_scope(study, [name for name in works if name not in losing])]
    lines.append(
        "; ".join(
            f"{part.label}: {MEANINGS[name]}"
            for name, part in BARS.items()
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
    return Chapter("losses", ("Useful and lost work",), [*tables, *blocks.notes(lines)], "page")


def _count_jobs(variant: str, summary: Json) -> str:
    """How many jobs ran in which time."""
    metrics = read_means(summary)[variant]
    jobs, span_s = metrics["jobs"], metrics["makespan_s"]
    text = f"{count(round(jobs), 'job')} in {format_figure(span_s / 3600)}\N{NO-BREAK SPACE}h"
    unable = metrics.get("unable_jobs")
    return text + (f"; {format_figure(unable)} of all never ended" if unable else "")


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


def count_losses(summary: Json) -> Iterator[str]:
    """How often nodes were lost, and what had not been saved, by variant."""
    yield from merge_names(_count_losses(summary))


def _count_losses(summary: Json) -> Iterator[tuple[str, str]]:
    for name, mean in read_means(summary).items():
        if "node_losses" not in mean:
            continue
        text = (
            f"nodes went down {mean['node_losses']:,.0f} times and were up "
            f"{100 * mean['nodes_up']:.2f} % of the time. That ended "
            f"{mean['lost_attempts']:,.0f} attempts; {mean['lost_gpu_s'] / 3600:,.0f} GPU h of "
            f"training, {mean['lost_energy_j'] / JOULES_PER_KWH:,.0f} kWh, had not been saved."
        )
        if mean["unable_jobs"]:
            text += f" {mean['unable_jobs']:,.0f} jobs never ended, for want of nodes."
        if mean.get("slow_gpu_s"):
            text += f" Slow nodes added {mean['slow_gpu_s'] / 3600:,.0f} GPU h to training."
        yield name, text

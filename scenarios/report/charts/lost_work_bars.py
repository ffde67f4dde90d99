"""Bars and figures of useful and lost work by variant, where nodes are lost."""

from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import Unit, choose_unit
from wattkeeper.scenarios.report import markup
from wattkeeper.scenarios.report.charts.lost_work import Work, find_losing, read_work
from wattkeeper.scenarios.report.markup import build_table, tag
from wattkeeper.scenarios.report.phrases import name_baseline, variant_label
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.electricity.charges import JOULES_PER_KWH

GPU_TIMES: Final = (("GPU\N{NO-BREAK SPACE}h", 3600.0), ("GPU\N{NO-BREAK SPACE}min", 60.0),
                    ("GPU\N{NO-BREAK SPACE}s", 1.0))  # fmt: skip
KWH: Final = (("kWh", JOULES_PER_KWH),)

PARTS: Final = {
    "useful": ("useful", "--soft"),
    "overhead": ("checkpoints and recovery", "--v1"),
    "slow": ("slow nodes", "--v3"),
    "unended": ("jobs that never ended", "--v4"),
    "lost": ("lost", "--v2"),
}
"""Parts of `Work` in the order of a bar: label, and colour."""

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
    labels = {name: label for name, (label, _) in PARTS.items()}
    gpu_time = {name: work.gpu_s for name, work in works.items()}
    tables = [_build_bars("GPU time", gpu_time, labels, GPU_TIMES, study.summary)]
    energy = {name: work.energy_j for name, work in works.items() if work.energy_j is not None}
    if len(energy) == len(works):
        labels |= {"useful": WITH_OVERHEAD}
        tables.append(_build_bars("energy", energy, labels, KWH, study.summary))
    lines = [_describe_scope(study, [name for name in works if name not in losing])]
    lines.append("; ".join(
        f"{label}: {MEANINGS[name]}" for name, (label, _) in PARTS.items()
        if any(getattr(work, name) for work in gpu_time.values())
    ) + ".")  # fmt: skip
    if len(tables) > 1:
        lines.append(
            "Energy is that of GPUs while jobs hold them, without PUE; that of checkpoints and "
            "recovery is not recorded apart. Free GPUs are not in it."
        )
    heading = tag("h2", "Useful and lost work")
    return tag("section", heading, *tables, *markup.notes(lines), id="losses")


def _build_bars(
    quantity: str,
    works: Mapping[str, Work],
    labels: Mapping[str, str],
    units: Sequence[Unit],
    summary: Json,
) -> Element:
    """A row for each variant: a bar of its parts, and their figures."""
    largest = max(sum(work) for work in works.values())
    unit, size = choose_unit([largest], units)
    heads = {
        name: f"{label}, {unit}"
        for name, label in labels.items()
        if any(getattr(work, name) for work in works.values())
    }
    rows = []
    for variant, work in works.items():
        figures = [
            tag("td", tag("b", _format(getattr(work, name) / size)),
                tag("span", _share(getattr(work, name), work), class_="change"), data_label=head)
            for name, head in heads.items()
        ]  # fmt: skip
        label = tag("th", variant_label(variant, summary), _count_jobs(variant, summary),
                    name_baseline(variant, summary), scope="row")  # fmt: skip
        bar = tag("td", _bar(work, largest, labels), style="width:34%", data_label=quantity)
        rows.append(tag("tr", label, bar, *figures))
    table = build_table(("variant", f"{quantity}, {unit}", *heads.values()), rows, class_="cards")
    _, of_bars, *of_figures = table.findall("thead/tr/th")
    of_bars.append(_scale(_format(largest / size)))
    for name, head in zip(heads, of_figures, strict=True):
        key = _key(name)
        key.tail, head.text = head.text, None
        head.append(key)
    return tag("div", table, class_="scroll")


def _bar(work: Work, largest: float, labels: Mapping[str, str]) -> Element:
    """The parts side by side; a bar of the full width is the largest of all variants."""
    parts = work._asdict()
    text = ", ".join(f"{labels[name]} {_share(part, work)}" for name, part in parts.items() if part)
    style = "display:block;width:100%;min-width:6rem;height:1.1rem;justify-self:stretch"
    bar = tag("svg", viewBox="0 0 100 10", preserveAspectRatio="none", role="img", style=style,
              aria_label=text or "nothing")  # fmt: skip
    begin = 0.0
    for name, part in parts.items():
        width = 100 * part / largest if largest else 0.0
        if part:
            bar.append(tag("rect", x=f"{begin:.3f}", y=0, width=f"{width:.3f}", height=10,
                           style=f"fill:var({PARTS[name][1]})"))  # fmt: skip
        begin += width
    return bar


def _scale(most: str) -> Element:
    """The axis of the bars: its begin and its end."""
    style = "display:flex;justify-content:space-between;border-bottom:1px solid var(--soft)"
    return tag("span", tag("span", "0"), tag("span", most), style=f"{style};font-weight:400")


def _key(name: str) -> Element:
    """The colour of a part."""
    box = tag("rect", width=10, height=10, style=f"fill:var({PARTS[name][1]})")
    return tag("svg", box, viewBox="0 0 10 10", style="width:.7rem;height:.7rem;margin-right:.3rem",
               aria_hidden="true")  # fmt: skip


def _count_jobs(variant: str, summary: Json) -> Element:
    """How many jobs ran in which time."""
    metrics = summary["variants"][variant]["metrics"]
    jobs, span_s = metrics["jobs"]["mean"], metrics["makespan_s"]["mean"]
    text = f"{count(round(jobs), 'job')} in {_format(span_s / 3600)}\N{NO-BREAK SPACE}h"
    unable = metrics.get("unable_jobs", {}).get("mean")
    return tag("small", text + (f"; {_format(unable)} of all never ended" if unable else ""))


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


def _format(value: float) -> str:
    """A figure with as many digits as are needed."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _share(part: float, work: Work) -> str:
    return f"{100 * part / sum(work):.1f} %" if sum(work) else "-"

"""Tables of the variants: their metrics, and changes by workload or GPU type."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.learning.window import LearningWindow
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.resolved.overrides import describe_overrides
from wattkeeper.scenarios.analysis.resolved.randomness import may_draw
from wattkeeper.scenarios.analysis.vocabulary import is_profiled, knows_energy, label_of
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import Block, Cell, Head, Table, TableRow
from wattkeeper.scenarios.document.presenter import Presenter
from wattkeeper.scenarios.document.words import compare_cell, label_row
from wattkeeper.scenarios.spec.case_names import base_of
from wattkeeper.sim.cluster_results.registry import METRICS
from wattkeeper.sim.results.statistics import FEWEST

PARTS: Final = {"workload": "workload", "gpu_type": "GPU type"}
"""Breakdowns of which one is shown, and their titles."""

VERDICTS: Final = {
    "lower": "the 95 % interval of the change lies below 0 %",
    "higher": "the 95 % interval of the change lies above 0 %",
    "noise": "the 95 % interval includes 0 %, so chance may explain the difference",
    "cannot tell": f"the 95 % interval includes 0 %, and it is of fewer than {FEWEST} seeds: run "
    f"more (--seeds {FEWEST})",
    "identical": "equal with every seed",
    "one seed": "no interval can be given",
}
"""Meaning of the verdicts on a difference."""

NEEDLESS: Final = "no interval is needed, since nothing is drawn at random"
JUDGED: Final = {"lower", "higher", "noise"}
ALONE: Final = (
    " Each verdict is of one difference alone, at 95 % and unadjusted for their number: of twenty "
    "differences by chance, about one is marked lower or higher (wattkeeper compare, of two "
    "folders, adjusts: Holm)."
)
"""Remark on verdicts that rest on an interval."""

OUTLIER: Final = 4
"""A change that is this many times the second largest is drawn as an arrow at the edge."""

MOST_PARTS: Final = 400
"""Rows of the table by workload."""


def explain_verdicts(summaries: Iterable[Json], random: bool = True) -> Iterator[str]:
    """The meaning of the verdicts that occur in summaries; `random`: whether anything is drawn."""
    verdicts = {
        versus["verdict"]
        for summary in summaries
        for about in summary["variants"].values()
        for versus in about["versus"].values()
        if isinstance(versus, Mapping) and versus.get("verdict")
    }
    known = VERDICTS if random else VERDICTS | {"one seed": NEEDLESS}
    meanings = [f"{name}: {text}" for name, text in known.items() if name in verdicts]
    if meanings:
        yield f"Marks: {'; '.join(meanings)}.{ALONE if verdicts & JUDGED else ''}"


def describe_variants(manifest: Manifest, summary: Json, presenter: Presenter) -> Iterator[Block]:
    """The table of the variants, what its marks mean, and notes on its metrics."""
    if tables := list(presenter.list_variants(summary)):
        yield from tables
        return
    yield _variant_table(manifest, summary, presenter.metrics(summary))
    yield from blocks.notes(explain_verdicts([summary], may_draw(manifest, summary)))
    yield from blocks.notes(describe_overrides(manifest["scenario"]))
    yield from blocks.notes(presenter.define_metrics(manifest, summary))


def _variant_table(manifest: Manifest, summary: Json, metrics: Sequence[str]) -> Table:
    """The metrics of each variant, and their changes against the baseline."""
    titles = [label_of(metric) for metric in metrics]
    has_regret = "cost" in metrics
    rows = []
    for name, about in summary["variants"].items():
        if base_of(name) in summary["variants"]:
            continue
        cells = [
            compare_cell(name, about, metric, _largest_change(metric, summary))
            for metric in metrics
        ]
        if has_regret:
            own = about["metrics"]
            cells.append(compare_cell(name, about, "regret", None))
            cells.append(Cell((f"{own['gave_up']['mean']:g} of {own['jobs']['mean']:g}",)))
        rows.append(TableRow(label_row(name, summary), cells))
    titles += ["regret", "gave up"] * has_regret
    return Table(blocks.heads("variant", *titles), rows, describe_means(manifest, summary))


def describe_means(manifest: Manifest, summary: Json) -> str:
    """What the figures of a table of variants are of."""
    seeds = len(manifest["seeds"])
    title = f"All jobs, mean of {seeds} seeds" if seeds > 1 else "All jobs"
    variants = summary["variants"]
    if len(variants) > 1:
        baselines = {
            about["versus"]["baseline"]
            for name, about in variants.items()
            if about["versus"]["baseline"] != name
        }
        baseline = manifest["scenario"]["baseline"]
        several = len(baselines) > 1
        title += ", each variant against its baseline" if several else f", against {baseline}"
        title += " [95 % interval]" * (seeds > 1)
    if any(base_of(name) in variants for name in variants):
        title += "; of modelled power limits the middle case"
    return title


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


def parts_table(
    summary: Json, metrics: Sequence[str], window: LearningWindow
) -> tuple[str, Table] | None:
    """Title and table of the changes by workload or GPU type; None without several of either."""
    key = next((key for key in PARTS if len(summary["by"][key]) > 1), None)
    if key is None:
        return None
    shown = [metric for metric in metrics if METRICS[metric].noun]
    shown = [metric for metric in shown if metric not in ("cluster_energy_j", "gpu_s_saved")]
    if is_profiled(summary) and window.longer:
        shown.append("last5_energy_j" if knows_energy(summary) else "last5_time_s")
    rows = [
        TableRow(
            label_row(name, summary),
            [compare_cell(name, about, metric, with_value=False) for metric in shown],
            part,
        )
        for part, variants in summary["by"][key].items()
        for name, about in variants.items()
        if about["versus"]["baseline"] != name
    ]
    if not rows:
        return None
    heads = [Head(PARTS[key]), Head("variant"), *(Head(label_of(metric)) for metric in shown)]
    caption = f"The first {MOST_PARTS} of {len(rows)} rows." * (len(rows) > MOST_PARTS)
    return PARTS[key], Table(heads, rows[:MOST_PARTS], "", caption)

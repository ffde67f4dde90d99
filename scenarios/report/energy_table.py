"""Table of the energy of the cluster by what its GPUs do, and in which part variants differ."""

from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.vocabulary import format_value
from wattkeeper.scenarios.report.markup import build_table, tag
from wattkeeper.scenarios.report.phrases import typeset_minus, variant_label

PARTS: Final = {
    "training_energy_j": "training",
    "held_energy_j": "held without training",
    "idle_energy_j": "idle",
    "asleep_energy_j": "asleep",
}
"""Parts of the energy of a cluster, and their labels."""

WHOLE: Final = "cluster_energy_j"
J_PER_KWH: Final = 3.6e6


def energy_section(manifest: Manifest, summary: Json) -> Element | None:
    """The section; None where the energy of the cluster is unknown."""
    means = {
        name: {metric: figures["mean"] for metric, figures in about["metrics"].items()}
        for name, about in summary["variants"].items()
    }
    if "saved" in summary or any(mean.get(WHOLE) is None for mean in means.values()):
        return None
    shown = {part: label for part, label in PARTS.items() if any(m[part] for m in means.values())}
    rows = [
        tag("tr", tag("th", variant_label(name, summary), scope="row"),
            *_cells(shown, means[name], means[about["versus"]["baseline"]]),
            tag("td", format_value(means[name]["makespan_s"], "makespan_s"),
                data_label="makespan"))
        for name, about in summary["variants"].items()
    ]  # fmt: skip
    heads = ("variant", *shown.values(), "together", "makespan")
    table = build_table(heads, rows, class_="cards")
    return tag("section", tag("h2", "Energy of the cluster"), table,
               tag("p", _describe_window(manifest, len(means) > 1), class_="note"),
               id="energy")  # fmt: skip


def _cells(
    shown: Mapping[str, str], own: Mapping[str, float], baseline: Mapping[str, float]
) -> list[Element]:
    """A variant's energy by part and in all, with the difference to the baseline below."""
    cells = []
    for part, label in {**shown, WHOLE: "together"}.items():
        change = own[part] - baseline[part] if own is not baseline else 0.0
        content = [tag("b", format_kwh(own[part]))]
        if abs(change) >= 1e-9 * abs(baseline[WHOLE]):
            content.append(tag("span", typeset_minus(format_kwh(change, "+")), class_="change"))
        cells.append(tag("td", *content, data_label=label))
    return cells


def format_kwh(energy_j: float, sign: str = "") -> str:
    """Energy in kWh, with three significant digits below 100."""
    kwh = energy_j / J_PER_KWH
    digits = 0 if abs(kwh) >= 100 else 1 if abs(kwh) >= 10 else 2
    return f"{kwh:{sign},.{digits}f} kWh"


def _describe_window(manifest: Manifest, several: bool) -> str:
    windows = manifest["windows"]
    from_s, until_s = windows[0]
    stated = manifest["scenario"].get("accounting") or {}
    begin = "" if "from_s" in stated else " (the first submission)"
    end = "" if "until_s" in stated else f" (the last end{' over all variants' * several})"
    span = f"from {from_s / 3600:,.1f} h{begin} to {until_s / 3600:,.1f} h{end}"
    if len(set(map(tuple, windows))) > 1:
        span += " with the first seed; each seed has its own window"
    return (
        f"All GPUs of the cluster, {span}. Small figures: difference to the baseline. "
        "A variant that ends earlier is charged for its GPUs until the end of the window."
    )

"""Table of the energy of the cluster by what its GPUs do, of its cost and its emissions."""

from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.consumption import (
    PARTS,
    RATES,
    UNCHANGED,
    currency,
    format_amount,
    known_rates,
    year_spans,
)
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.vocabulary import format_value
from wattkeeper.scenarios.report.markup import build_table, tag
from wattkeeper.scenarios.report.phrases import name_baseline, typeset_minus, variant_label
from wattkeeper.sim.cluster_results.accounting import ENERGY


def energy_section(manifest: Manifest, summary: Json) -> Element | None:
    """The section; None where the energy of the cluster is unknown."""
    means = {
        name: {metric: figures["mean"] for metric, figures in about["metrics"].items()}
        for name, about in summary["variants"].items()
    }
    if "saved" in summary or any(mean.get(ENERGY) is None for mean in means.values()):
        return None
    shown = {part: label for part, label in PARTS.items() if any(m[part] for m in means.values())}
    shown[ENERGY] = "together"
    money = currency(manifest)
    shown |= known_rates(manifest, summary)
    rows = [
        tag(
            "tr",
            tag("th", variant_label(name, summary), name_baseline(name, summary), scope="row"),
            *_cells(shown, means[name], means[about["versus"]["baseline"]], money),
            tag("td", format_value(means[name]["makespan_s"], "makespan_s"), data_label="makespan"),
        )
        for name, about in summary["variants"].items()
    ]
    heads = ("variant", *shown.values(), "makespan")
    table = build_table(heads, rows, class_="cards")
    return tag(
        "section",
        tag("h2", "Energy of the cluster"),
        tag("div", table, class_="scroll"),
        tag("p", _describe_window(manifest, summary), class_="note"),
        id="energy",
    )


def _cells(
    shown: Mapping[str, str],
    own: Mapping[str, float],
    baseline: Mapping[str, float],
    money: str | None,
) -> list[Element]:
    """A variant's energy by part and in all, with the difference to the baseline below."""
    cells = []
    for metric, label in shown.items():
        whole = metric if metric in RATES else ENERGY
        change = own[metric] - baseline[metric] if own is not baseline else 0.0
        content = [tag("b", typeset_minus(format_amount(own[metric], metric, money)))]
        if abs(change) > UNCHANGED * abs(baseline[whole]):
            text = typeset_minus(format_amount(change, metric, money, "+"))
            content.append(tag("span", text, class_="change"))
        cells.append(tag("td", *content, data_label=label))
    return cells


def _describe_window(manifest: Manifest, summary: Json) -> str:
    several = len(summary["variants"]) > 1
    windows = manifest["windows"]
    from_s, until_s = windows[0]
    stated = manifest["scenario"].get("accounting") or {}
    begin = "" if "from_s" in stated else " (the first submission)"
    end = "" if "until_s" in stated else f" (the last end{' over all variants' * several})"
    span = f"from {from_s / 3600:,.1f} h{begin} to {until_s / 3600:,.1f} h{end}"
    if len(set(map(tuple, windows))) > 1:
        span += " with the first seed; each seed has its own window"
    rates = " ".join(_describe_rates(manifest))
    above = not summary["by"]["workload"] or "electricity" in manifest
    year = ""
    if above and not stated and year_spans(summary):
        year = " Amounts a year, above, are of the time of the submissions instead."
    return (
        f"All GPUs of the cluster, {span}. Small figures: difference to the baseline. "
        "A variant that ends earlier is charged for its GPUs until the end of the window."
        f"{year}{' ' * bool(rates)}{rates}"
    )


def _describe_rates(manifest: Manifest) -> Iterator[str]:
    """Prices and emissions of electricity, of all variants or by variant."""
    tariffs = manifest.get("electricity", {})
    texts = {
        name: "; ".join(filter(None, (tariff.get("price"), tariff.get("carbon"))))
        for name, tariff in tariffs.items()
    }
    same = len(set(texts.values())) == 1
    for name, text in list(texts.items())[: 1 if same else None]:
        yield f"Electricity{'' if same else f' of {name}'}: {text or 'not stated'}."

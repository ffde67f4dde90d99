"""What losses of nodes cost ordinary and elastic jobs, in sentences, and what that is of."""

from collections.abc import Iterator, Mapping
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import currency_of_rent, four_digits
from wattkeeper.scenarios.spec.wording import merge_names
from wattkeeper.traces.electricity.charges import JOULES_PER_KWH

PARTS: Final = {
    "redundant": "redundant",
    "lost": "lost",
    "open": "under way at the end",
    "pause": "pauses",
    "checkpoint": "checkpoints",
    "waiting": "waiting nodes",
}
"""Parts of the energy of elastic jobs that are not useful, and their names."""


def only_elastic(scenario: Json) -> bool:
    """Whether all jobs of a resolved scenario are elastic."""
    workload = scenario["workload"]
    return workload["kind"] == "elastic" and workload.get("others") is None


def describe_losses(scenario: Json, summary: Json) -> Iterator[str]:
    """What losses of nodes cost, by variant."""
    yield from count_losses(summary)
    yield from merge_names(_describe_elastic(scenario, summary))


def _describe_elastic(scenario: Json, summary: Json) -> Iterator[tuple[str, str]]:
    money = currency_of_rent(scenario)
    for name, about in summary["variants"].items():
        mean = {metric: values["mean"] for metric, values in about["metrics"].items()}
        if mean.get("ettr") is not None:
            yield name, f"{_describe_time(mean)}{_describe_energy(mean, money)}"
        elif mean.get("goodput") is not None:
            yield name, "no elastic job ever held a node."


def count_losses(summary: Json) -> Iterator[str]:
    """How often nodes were lost, and what had not been saved, by variant."""
    yield from merge_names(_count_losses(summary))


def _count_losses(summary: Json) -> Iterator[tuple[str, str]]:
    for name, about in summary["variants"].items():
        mean = {metric: values["mean"] for metric, values in about["metrics"].items()}
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


def _describe_time(mean: Mapping[str, float]) -> str:
    """What elastic jobs did of their time."""
    shares = ", ".join(
        f"{what} {100 * mean[share]:z.1f} %"
        for what, share in (
            ("lost", "lost_share"),
            ("under way at the end", "open_share"),
            ("pauses", "pause_share"),
            ("checkpoints", "checkpoint_share"),
            ("too few nodes", "stopped_share"),
        )
        if share in mean
    )
    return (
        f"elastic jobs committed {four_digits(mean['goodput'])} samples/s. Their time: steps that "
        f"count {100 * mean['ettr']:.1f} %, {shares}."
    )


def _describe_energy(mean: Mapping[str, float | None], money: str) -> str:
    """What a committed sample took."""
    energy_j, rent = mean["useful_sample_j"], mean.get("useful_sample_rent")
    if energy_j is None:
        return ""
    text = f" A committed sample took {four_digits(energy_j)} J"
    whole = mean["elastic_energy_j"]
    if whole:
        listed = ", ".join(
            f"{label} {100 * (mean[f'elastic_{part}_j'] or 0.0) / whole:z.1f} %"
            for part, label in PARTS.items()
            if f"elastic_{part}_j" in mean
        )
        text += f" ({listed})"
    return text + (
        "." if rent is None else f"; the rent of 1,000 is {four_digits(1000 * rent)} {money}."
    )

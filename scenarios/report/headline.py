"""The answer of a study in sentences."""

from collections.abc import Collection, Iterator
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import format_value, shown_metrics
from wattkeeper.scenarios.report import zoo_savings
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.phrases import (
    FUTURE,
    WORDS,
    Words,
    describe_change,
    join_list,
    signed_change,
    variant_label,
    variant_sentence,
)
from wattkeeper.scenarios.spec.wording import percent

SENTENCES = 5
"""Variants that get a sentence; the table has all."""


def write_sentences(summary: Json, oracles: Collection[str] = ()) -> Iterator[Element]:
    """The change of each variant against its baseline; policies of oracles know the future."""
    if "saved" in summary:
        yield from zoo_savings.write_sentences(summary)
        return
    metrics = [metric for metric in shown_metrics(summary) if metric in WORDS]
    others = {name: about for name, about in summary["variants"].items()
              if about["versus"]["baseline"] != name}  # fmt: skip
    if not others:
        yield from _write_values(metrics, summary)
        return
    order = list(others)
    if len(others) > SENTENCES:
        first = metrics[0]
        means = {name: about["metrics"][first]["mean"] for name, about in others.items()}
        order.sort(key=lambda name: (means[name] is None, means[name] or 0.0))
        yield tag("li", f"The {SENTENCES} of {len(others)} variants with the least "
                  f"{WORDS[first][0]}; all are in the table.")  # fmt: skip
    for name in order[:SENTENCES]:
        yield _write_sentence(name, others[name], metrics, summary, name in oracles)


def _write_values(metrics: list[str], summary: Json) -> Iterator[Element]:
    """The values of each variant, where nothing is compared."""
    for name, about in summary["variants"].items():
        values: list[list[Words]] = [
            [f"{WORDS[metric][0]} ", tag("strong", format_value(mean, metric))]
            for metric in metrics
            if (mean := about["metrics"][metric]["mean"]) is not None
        ]
        words = join_list(values) or ["no figure is known"]
        yield tag("li", variant_label(name, summary), ": ", *words, ".")


def _write_sentence(
    name: str, about: Json, metrics: list[str], summary: Json, oracle: bool
) -> Element:
    versus = about["versus"]
    if _change_alike(versus, "time_s", "jct_s"):  # no job waits
        metrics = [metric for metric in metrics if metric != "jct_s"]
    baseline = variant_label(versus["baseline"], summary)
    clear, same, unclear = _sort_changes(versus, metrics)
    clauses: list[list[Words]] = []
    if clear:
        clauses.append([*join_list(clear), " than ", baseline])
    if same:
        as_baseline: list[Words] = [] if clear else [" as ", baseline]
        clauses.append(["the same ", *join_list(same), *as_baseline])
    if unclear:
        clauses.append(["no difference beyond noise in ", *join_list(unclear)])
    saved = about["metrics"].get("gpu_s_saved", {}).get("mean")
    if saved and versus.get("gpu_s_saved", {}).get("ratio") is None:
        clauses.append([f"{format_value(saved, 'gpu_s_saved')} of GPU time saved by warm starts"])
    clauses += _change_after_learning(versus, clear)
    if not clauses:
        clauses = [["nothing can be compared with ", baseline]]
    joined = [word for clause in clauses for word in (*clause, "; ")][:-1]
    return variant_sentence(name, summary, FUTURE if oracle else None, ": ", *joined, ".")


def _sort_changes(
    versus: Json, metrics: list[str]
) -> tuple[list[list[Words]], list[list[Words]], list[list[Words]]]:
    """Metrics that change, that stay the same, and whose change is within noise, in words."""
    clear: list[list[Words]] = []
    same: list[list[Words]] = []
    unclear: list[list[Words]] = []
    for metric in metrics:
        change = versus.get(metric) or {}
        if change.get("ratio") is None:
            continue
        verdict, noun = change.get("verdict"), WORDS[metric][0]
        if verdict == "identical" or (
            verdict in (None, "one seed") and percent(change["ratio"] - 1) == "+0.0"
        ):
            same.append([noun])
        elif verdict == "noise":
            unclear.append([noun, " (", *describe_change(metric, change), ")"])
        else:
            text, interval = describe_change(metric, change)
            clear.append([tag("strong", text), f" {noun}", interval])
    return clear, same, unclear


def _change_alike(versus: Json, *metrics: str) -> bool:
    """Whether metrics change alike, to the shown precision."""
    changes = [versus.get(metric) or {} for metric in metrics]
    return all(change.get("ratio") is not None for change in changes) and (
        len({signed_change(change) for change in changes}) == 1
    )


def _change_after_learning(versus: Json, clear: list[list[Words]]) -> Iterator[list[Words]]:
    """The energy of a job after learning, where it changes otherwise than that of all jobs."""
    whole, last = (versus.get(key) or {} for key in ("energy_j", "last5_energy_j"))
    if not clear or last.get("ratio") is None or whole.get("ratio") is None:
        return
    text, interval = describe_change("energy_j", last)
    if text != describe_change("energy_j", whole)[0] and last.get("verdict") in ("lower", "higher"):
        yield [f"after learning (the last 5 recurrences), {text} energy a job", interval]


def write_remarks(seeds: int, summary: Json) -> Iterator[str]:
    """The statistical certainty of the figures, given the number of seeds."""
    if len(summary["variants"]) == 1:
        return
    if seeds == 1:
        yield (
            "One seed: there are no intervals, and chance may explain a difference where anything "
            "is drawn at random."
        )
    else:
        yield f"Means of {seeds} seeds, compared seed by seed [95 % interval]."

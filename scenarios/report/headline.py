"""The answer of a study in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.vocabulary import shown_metrics, value_text
from wattkeeper.scenarios.report import zoo_savings
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.phrases import (
    FUTURE,
    WORDS,
    Words,
    change,
    line,
    listed,
    signed,
    variant,
)
from wattkeeper.scenarios.spec.wording import percent

SENTENCES = 5
"""Variants that sentences are made of; the table has all."""


def sentences(summary: Json, bounds: Collection[str] = ()) -> Iterator[Element]:
    """What each variant changes against its baseline, in words.

    Args:
        summary: Of the study.
        bounds: Variants whose policy knows the future.
    """
    if "saved" in summary:
        yield from zoo_savings.sentences(summary)
        return
    compared = [metric for metric in shown_metrics(summary) if metric in WORDS]
    others = {name: one for name, one in summary["variants"].items()
              if one["versus"]["baseline"] != name}  # fmt: skip
    if not others:
        for name, one in summary["variants"].items():
            known: list[list[Words]] = [
                [f"{WORDS[metric][0]} ", tag("strong", value_text(mean, metric))]
                for metric in compared
                if (mean := one["metrics"][metric]["mean"]) is not None
            ]
            said = listed(known) or ["no figure is known"]
            yield tag("li", variant(name, summary), ": ", *said, ".")
        return
    if len(others) <= SENTENCES:
        for name, one in others.items():
            yield _sentence(name, one, compared, summary, name in bounds)
        return
    first = compared[0]
    means = {name: one["metrics"][first]["mean"] for name, one in others.items()}
    order = sorted(others, key=lambda name: (means[name] is None, means[name] or 0.0))
    yield tag("li", f"The {SENTENCES} of {len(others)} variants with the least {WORDS[first][0]}; "
              "all are in the table.")  # fmt: skip
    for name in order[:SENTENCES]:
        yield _sentence(name, others[name], compared, summary, name in bounds)


def _sentence(name: str, one: Json, compared: list[str], summary: Json, bound: bool) -> Element:
    versus = one["versus"]
    if _same_change(versus, "time_s", "jct_s"):  # nobody waits
        compared = [metric for metric in compared if metric != "jct_s"]
    baseline = variant(versus["baseline"], summary)
    clear: list[list[Words]] = []
    unclear: list[list[Words]] = []
    same: list[list[Words]] = []
    for metric in compared:
        found = versus.get(metric) or {}
        if found.get("ratio") is None:
            continue
        verdict, noun = found.get("verdict"), WORDS[metric][0]
        if verdict == "identical" or (
            verdict in (None, "one seed") and percent(found["ratio"] - 1) == "+0.0"
        ):
            same.append([noun])
        elif verdict == "noise":
            unclear.append([noun, " (", *change(metric, found), ")"])
        else:
            changed, interval = change(metric, found)
            clear.append([tag("strong", changed), f" {noun}", interval])
    clauses: list[list[Words]] = []
    if clear:
        clauses.append([*listed(clear), " than ", baseline])
    if same:
        as_baseline: list[Words] = [] if clear else [" as ", baseline]
        clauses.append(["the same ", *listed(same), *as_baseline])
    if unclear:
        clauses.append(["no difference beyond noise in ", *listed(unclear)])
    zoo_savings = one["metrics"].get("gpu_s_saved", {}).get("mean")
    if zoo_savings and versus.get("gpu_s_saved", {}).get("ratio") is None:
        warm = f"{value_text(zoo_savings, 'gpu_s_saved')} of GPU time saved by warm starts"
        clauses.append([warm])
    clauses += _after_learning(one, clear)
    if not clauses:
        clauses = [["nothing can be compared with ", baseline]]
    joined = [word for clause in clauses for word in (*clause, "; ")][:-1]
    return line(name, summary, FUTURE if bound else None, ": ", *joined, ".")


def _same_change(versus: Json, one: str, other: str) -> bool:
    """Whether two metrics change alike, as far as it is shown."""
    found = [versus.get(metric) or {} for metric in (one, other)]
    return all(of.get("ratio") is not None for of in found) and (
        signed(found[0]) == signed(found[1])
    )


def _after_learning(one: Json, clear: list[list[Words]]) -> Iterator[list[Words]]:
    """The energy of a job after learning, where its change is another one than that of all."""
    whole, last = (one["versus"].get(key) or {} for key in ("energy_j", "last5_energy_j"))
    if not clear or last.get("ratio") is None or whole.get("ratio") is None:
        return
    text, interval = change("energy_j", last)
    if text != change("energy_j", whole)[0] and last.get("verdict") in ("lower", "higher"):
        yield [f"after learning (the last 5 recurrences), {text} energy a job", interval]


def remarks(study_seeds: int, summary: Json) -> Iterator[str]:
    """How sure the figures are."""
    if len(summary["variants"]) == 1:
        return
    if study_seeds == 1:
        yield (
            "One seed: there are no intervals, and luck may explain a difference where anything is "
            "drawn at random."
        )
    else:
        yield f"Means of {study_seeds} seeds, compared seed by seed [95 % interval]."

"""The answer of a study in sentences."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.learning.window import LearningWindow
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.outside_window import outside_shares
from wattkeeper.scenarios.analysis.overrides import variant_overrides
from wattkeeper.scenarios.analysis.policy_kinds import knows_run_times
from wattkeeper.scenarios.analysis.randomness import may_draw, seeds_agree
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import currency_of_rent, format_value, shown_metrics
from wattkeeper.scenarios.report import zoo_savings
from wattkeeper.scenarios.report.amounts import Bill
from wattkeeper.scenarios.report.league_section import league_sentences
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
from wattkeeper.scenarios.report.times_section import describe_hardest_hit
from wattkeeper.scenarios.spec.wording import percent
from wattkeeper.sim.cluster_results.accounting import ENERGY

MANY = 10
"""Variants up to which each gets a sentence, in the order of the scenario."""
SENTENCES = 5
"""Variants that get a sentence where there are more; the table has all."""

UNCHARGED = 0.01
"""A sentence tells a difference of so much of the energy of jobs outside the window."""

SPELLED = ("queue_delay_s", "jct_s")
"""Metrics whose values stand beside their change: the time that users lose."""


def write_sentences(
    study: Study, bill: Bill, window: LearningWindow, oracles: Collection[str] = ()
) -> Iterator[Element]:
    """The baseline's figures, then each variant's changes; of a league, variants by regret.

    Oracles know the future.
    """
    summary = study.summary
    if "saved" in summary:
        yield from zoo_savings.write_sentences(summary)
        return
    if "league" in summary:
        yield from league_sentences([("", summary["league"])], oracles, summary)
        return
    metrics = [metric for metric in shown_metrics(summary) if metric in WORDS]
    if ENERGY in bill.amounts:
        metrics = [metric for metric in metrics if metric != ENERGY]
    baselines = [
        name for name, about in summary["variants"].items() if about["versus"]["baseline"] == name
    ]
    cases = {case for others in bill.cases.values() for case, _ in others}
    others = {
        name: about
        for name, about in summary["variants"].items()
        if name not in baselines and name not in cases
    }
    for name in (name for name in baselines if name not in cases):
        yield _write_values(name, metrics, study, bill, is_baseline=bool(others))
    order = list(others)
    if len(others) > MANY:
        noun, means = bill.rank_by() or (
            WORDS[metrics[0]][0],
            {name: about["metrics"][metrics[0]]["mean"] for name, about in others.items()},
        )
        order.sort(key=lambda name: (means[name] is None, means[name] or 0.0))
        order = order[:SENTENCES]
        yield tag(
            "li",
            f"The {SENTENCES} of {len(others)} variants with the least {noun}; all are "
            "in the table.",
        )
    scenario = study.manifest["scenario"]
    overrides = variant_overrides(scenario)
    times = None if summary["by"]["workload"] else study.manifest.get("job_times")
    if times is not None and len(others) > SENTENCES:  # short sentences, lest they fill two screens
        metrics = [metric for metric in metrics if metric != "queue_delay_s"]
    outside = outside_shares(study.manifest, summary)
    for name in order:
        uncharged = _name_uncharged(outside, name, others[name]["versus"]["baseline"])
        hardest_hit = "" if times is None else describe_hardest_hit(times, name)
        foresight = "knows run times in advance" * knows_run_times(scenario, name)
        override = ", ".join(filter(None, (overrides.get(name), foresight, uncharged)))
        about = _VariantFacts(name, others[name], override, name in oracles, hardest_hit)
        yield _write_sentence(about, metrics, summary, bill, window)


def _name_uncharged(outside: Mapping[str, float], name: str, baseline: str) -> str:
    """Says that a variant does much more or less of its work outside the window, if it does."""
    share, base = outside.get(name), outside.get(baseline)
    if share is None or base is None or abs(share - base) < UNCHARGED:
        return ""
    return (
        f"{100 * share:.1f} % of its jobs' energy is outside the time that is charged, "
        f"{100 * base:.1f} % of the baseline's"
    )


class _VariantFacts(NamedTuple):
    """What a sentence on a variant is written from.

    `about` is its entry in the summary; `hardest_hit` says which jobs lose most time.
    """

    name: str
    about: Json
    override: str
    oracle: bool
    hardest_hit: str


def _write_values(
    name: str, metrics: list[str], study: Study, bill: Bill, is_baseline: bool
) -> Element:
    """The values of a variant, which nothing is compared with."""
    summary = study.summary
    figures = summary["variants"][name]["metrics"]
    units = {"useful_sample_rent": f" {currency_of_rent(study.manifest['scenario'])}"}
    used = bill.describe_use(name)
    values: list[list[Words]] = [
        [
            f"{_name(metric, bill)} ",
            tag("strong", format_value(mean, metric) + units.get(metric, "")),
        ]
        for metric in metrics
        if (mean := figures[metric]["mean"]) is not None
    ]
    between = "; in the run, " if bill.of_year else "; "  # amounts of a year before
    words = [*used, between if used and values else None, *join_list(values)]
    role = ", the baseline: " if is_baseline else ": "
    return tag(
        "li",
        variant_label(name, summary),
        role,
        *(words if any(words) else ["no figure is known"]),
        ".",
    )


def _write_sentence(
    facts: _VariantFacts, metrics: list[str], summary: Json, bill: Bill, window: LearningWindow
) -> Element:
    name, about, versus = facts.name, facts.about, facts.about["versus"]
    if "time_s" in metrics and _change_alike(versus, "time_s", "jct_s"):  # no job waits
        metrics = [metric for metric in metrics if metric != "jct_s"]
    baseline = variant_label(versus["baseline"], summary)
    cases = [summary["variants"][case] for case, _ in bill.cases.get(name, ())]
    clear, same, unclear = _sort_changes(
        about, summary["variants"][versus["baseline"]], metrics, cases, bill
    )
    clauses = bill.describe_difference(name, versus["baseline"], baseline)
    named = bool(clauses)
    if clear:
        than: list[Words] = [] if named else [" than ", baseline]
        clauses.append([*join_list(clear), *than])
    if same:
        as_baseline: list[Words] = [] if clear or named else [" as ", baseline]
        clauses.append(["the same ", *join_list(same), *as_baseline])
    if unclear:
        clauses.append(["no difference beyond noise in ", *join_list(unclear)])
    saved = about["metrics"].get("gpu_s_saved", {}).get("mean")
    if saved and versus.get("gpu_s_saved", {}).get("ratio") is None:
        warm = f"{format_value(saved, 'gpu_s_saved')} of GPU time saved by warm starts"
        clauses.append([f"{warm} in the run" if bill.of_year else warm])
    clauses += _change_after_learning(versus, clear, window)
    clauses += [[facts.hardest_hit]] * bool(facts.hardest_hit)
    if not clauses:
        clauses = [["nothing can be compared with ", baseline]]
    joined = [word for clause in clauses for word in (*clause, "; ")][:-1]
    override = tag("span", f" ({facts.override})", class_="change") if facts.override else None
    return variant_sentence(
        name, summary, override, FUTURE if facts.oracle else None, ": ", *joined, "."
    )


def _sort_changes(
    about: Json, baseline: Json, metrics: list[str], cases: list[Json], bill: Bill
) -> tuple[list[list[Words]], list[list[Words]], list[list[Words]]]:
    """Metrics that change, that stay the same, and whose change is within noise, in words."""
    clear: list[list[Words]] = []
    same: list[list[Words]] = []
    unclear: list[list[Words]] = []
    for metric in metrics:
        change = about["versus"].get(metric) or {}
        verdict, noun = change.get("verdict"), _name(metric, bill)
        values = [side["metrics"].get(metric, {}).get("mean") for side in (about, baseline)]
        instead = " instead of ".join(format_value(value, metric) for value in values)
        span = _span_cases(metric, about, cases)
        if change.get("ratio") is None:
            if metric in SPELLED and _differ(values, metric):
                if verdict == "noise":
                    unclear.append([f"{noun} ({instead})"])
                elif verdict in ("lower", "higher", "one seed"):
                    clear.append([f"{noun} ", tag("strong", instead)])
            continue
        if verdict == "identical" or (
            verdict in (None, "one seed") and percent(change["ratio"] - 1) == "+0.0"
        ):
            if span:
                middle = format_value(values[0], metric)
                clear.append([f"{noun} {middle}", tag("small", f" ({span})")])
            else:
                same.append([noun])
        elif verdict == "noise":
            unclear.append([noun, " (", *describe_change(metric, change), ")"])
        else:
            text, interval = describe_change(metric, change)
            is_spelled = metric in SPELLED and _differ(values, metric)
            spelled = "; ".join([instead] * is_spelled + [span] * bool(span))
            bracketed = f" ({spelled})" if spelled else None
            clear.append([tag("strong", text), f" {noun}", interval, bracketed])
    return clear, same, unclear


def _name(metric: str, bill: Bill) -> str:
    """The noun of a metric; beside the energy of the cluster, that of jobs is called so."""
    return "energy of jobs" if metric == "energy_j" and bill.amounts else WORDS[metric][0]


def _differ(values: list[float | None], metric: str) -> bool:
    """Whether known values differ by 1 % or more, as they are shown."""
    known = [value for value in values if value is not None]
    return (
        len(known) == len(values)
        and max(known) >= 1.01 * min(known)
        and len({format_value(value, metric) for value in known}) > 1
    )


def _span_cases(metric: str, about: Json, cases: list[Json]) -> str:
    """The range of a time that users lose, over the cases of a variant; empty if it is none."""
    if not cases or metric not in SPELLED:
        return ""
    values = [case["metrics"].get(metric, {}).get("mean") for case in (about, *cases)]
    known = [value for value in values if value is not None]
    bounds = [format_value(bound, metric) for bound in (min(known), max(known))] if known else []
    return f"{' to '.join(bounds)} over the cases" if len(set(bounds)) > 1 else ""


def _change_alike(versus: Json, *metrics: str) -> bool:
    """Whether metrics change alike, to the shown precision."""
    changes = [versus.get(metric) or {} for metric in metrics]
    return all(change.get("ratio") is not None for change in changes) and (
        len({signed_change(change) for change in changes}) == 1
    )


def _change_after_learning(
    versus: Json, clear: list[list[Words]], window: LearningWindow
) -> Iterator[list[Words]]:
    """The energy of a job after learning, where it changes otherwise than that of all jobs."""
    whole, last = (versus.get(key) or {} for key in ("energy_j", "last5_energy_j"))
    if not clear or last.get("ratio") is None or whole.get("ratio") is None or not window.longer:
        return
    text, interval = describe_change("energy_j", last)
    if text != describe_change("energy_j", whole)[0] and last.get("verdict") in ("lower", "higher"):
        yield [f"after learning ({window.describe()}), {text} energy a job", interval]


def write_remarks(manifest: Manifest, summary: Json) -> Iterator[str]:
    """The statistical certainty of the figures, given the number of seeds."""
    seeds = len(manifest["seeds"])
    if len(summary["variants"]) == 1:
        return
    if not may_draw(manifest, summary) or (seeds > 1 and seeds_agree(summary)):
        yield "Nothing is drawn at random here: other seeds give the same figures."
    elif seeds == 1:
        yield (
            "One seed: there are no intervals, and chance may explain a difference where anything "
            "is drawn at random."
        )
    else:
        yield f"Means of {seeds} seeds, compared seed by seed [95 % interval]."

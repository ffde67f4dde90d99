"""What a variant changes in the metric that decides, and what else, as parts of sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.aim import SAME, Aim, VariantChange
from wattkeeper.scenarios.analysis.bill import Bill
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import (
    duration_metric,
    format_value,
    is_profiled,
    mean_of,
)
from wattkeeper.scenarios.document.blocks import Code, Small, Span, Strong
from wattkeeper.scenarios.document.words import describe_change, unsigned
from wattkeeper.scenarios.spec.wording import percent
from wattkeeper.sim.cluster_results.accounting import CARBON, ENERGY

OPEN: Final = ("noise", "cannot tell")
"""Verdicts that leave open whether anything changes."""

MEASURE: Final[tuple[Span, ...]] = (
    "it depends on how far the jobs are bound by compute, which was not measured; ",
    Code("wattkeeper record"),
    " measures one",
)


def is_clear(versus: Json) -> bool:
    """Whether a change is known, is more than 0.0 %, and is not left open."""
    ratio = versus.get("ratio")
    return ratio is not None and versus["verdict"] not in OPEN and abs(ratio - 1) >= SAME


class Effects:
    """What the variants of a study change, in words."""

    def __init__(self, study: Study, aim: Aim, bill: Bill) -> None:
        self._summary = study.summary
        self._aim, self._bill = aim, bill
        self._seeds = len(study.manifest["seeds"])

    def tell_gain(self, change: VariantChange, *, may: bool = False) -> Iterator[Span]:
        """What is saved, as the rest of a sentence."""
        s = "" if may else "s"
        share = f"{unsigned(abs(change.share))} %"
        versus = self._summary["variants"][change.name]["versus"]
        match self._aim.metric:
            case "jct_s":
                values = [
                    mean_of(name, "jct_s", self._summary) for name in (change.name, change.baseline)
                ]
                instead = " instead of ".join(format_value(value, "jct_s") for value in values)
                yield f"end{s} jobs "
                yield Strong(f"{share} sooner")
                if len(set(instead.split(" instead of "))) > 1:
                    yield f" ({instead} on average)"
            case "time_s":
                ratio = (versus.get("time_s") or {}).get("ratio")
                yield f"shorten{s} training by "
                yield Strong(share if ratio is None else f"{unsigned(1 - ratio)} %")
                yield from _interval("time_s", versus)
            case "goodput":
                yield f"commit{s} "
                yield Strong(f"{share} more samples")
                yield " a second"
            case "gpu_s_saved":
                yield f"save{s} "
                yield Strong(format_value(change.saved, "gpu_s_saved"))
                yield " of GPU time by warm starts"
            case "energy_j" | "cost":
                yield from self._gain_of_jobs(versus, s)
            case _:
                yield f"save{s} "
                yield Strong(f"{self._list_amounts(change)}{self._bill.period}")
                yield from self._range(change, f" ({share})" * (change.share == change.share))

    def _gain_of_jobs(self, versus: Json, s: str) -> Iterator[Span]:
        """The energy of all jobs, whose cost decides with their time."""
        energy = versus.get("energy_j") or {}
        if is_clear(energy):
            text, interval = describe_change("energy_j", energy)
            share, _, direction = text.partition(" % ")
            if direction == "less":
                yield f"save{s} "
                yield Strong(f"{share} %")
                yield " of the energy of all jobs"
            else:
                yield f"take{s} "
                yield Strong(f"{share} % more energy")
            yield from [Small(f" {interval}")] * bool(interval)
        elif (versus.get(self._aim.metric) or {}).get("ratio") is not None:
            text, interval = describe_change(self._aim.metric, versus[self._aim.metric])
            yield f"ha{s or 've'} "
            yield Strong(f"{text} {self._aim.noun}")
            yield from [Small(f" {interval}")] * bool(interval)

    def _list_amounts(self, change: VariantChange) -> str:
        """What is saved of the amount that decides, and of one that says something else."""
        texts = [self._bill.format(abs(change.saved), self._aim.metric)]
        other = ENERGY if self._aim.metric == CARBON else CARBON
        if other not in self._bill.amounts:
            other = ENERGY
        if other != self._aim.metric and other in self._bill.amounts:
            means = [self._bill.mean(other, name) for name in (change.baseline, change.name)]
            saved = means[0] - means[1]
            if saved * change.saved > 0 and saved > SAME * abs(means[0]):
                texts.append(self._bill.format(abs(saved), other))
        return " and ".join(texts)

    def _range(self, change: VariantChange, share: str) -> Iterator[Span]:
        """The range of what is saved: over cases, with how to narrow it, or over seeds."""
        shown = self._bill.format_range(
            change.low, change.high, self._aim.metric, is_modelled=change.is_modelled
        )
        if change.is_modelled:
            yield f" ({shown}: "
            yield from MEASURE
            yield ")"
            return
        yield share
        if change.low == change.low and change.low != change.high:
            yield Small(f" {shown}")

    def tell_side(self, name: str) -> Iterator[Span]:
        """What else changes: the time of jobs, or the energy where time decides."""
        versus = self._summary["variants"][name]["versus"]
        profiled = is_profiled(self._summary)
        if self._aim.metric in ("jct_s", "time_s", "gpu_s_saved"):
            yield from self._side_energy(versus, "energy_j" if profiled else ENERGY)
            return
        if self._aim.metric == "goodput":
            return
        metric, subject = ("time_s", "training") if profiled else ("jct_s", "jobs")
        change = versus.get(metric) or {}
        if change.get("ratio") is None:
            return
        size = abs(change["ratio"] - 1)
        takes = "takes" if profiled else "take"
        text, interval = describe_change(metric, change)
        share = text.rpartition(" ")[0]
        bounds = f" {interval}" if interval else ""
        match change["verdict"]:
            case "cannot tell":
                yield f"; whether {subject} {takes} longer cannot be told with {self._seeds} seeds "
                yield Small(f"({text}{bounds})")
            case "noise":
                yield f"; how long {subject} {takes} does not change beyond noise"
            case _ if size < SAME and not profiled and self._same_wait(versus):
                yield ", and jobs wait no longer on average"
            case _ if size < SAME:
                yield f", and {subject} {takes} no longer"
            case _ if profiled:
                more = "longer" if change["ratio"] > 1 else "less time"
                yield f", and training takes {share} {more}"
                yield Small(bounds)
            case _:
                more = f"take {share} longer" if change["ratio"] > 1 else f"end {share} sooner"
                yield f", and jobs {more}{self._side_of_cases(name, metric)}"
                yield Small(bounds)

    def _side_of_cases(self, name: str, metric: str) -> str:
        """The range of a change over the cases of a model."""
        variants = self._summary["variants"]
        cases = [name, *(case for case, _ in self._bill.cases.get(name, ()))]
        versus = [variants[case]["versus"].get(metric) or {} for case in cases]
        changes = [each["ratio"] - 1 for each in versus if each.get("ratio") is not None]
        bounds = dict.fromkeys(f"{percent(bound)} %" for bound in (min(changes), max(changes)))
        return f" ({' to '.join(bounds)} over the same range)" if len(bounds) > 1 else ""

    def lengthening(self, name: str) -> float:
        """By how much the time of jobs is longer under a variant, a share; 0 if it is not known."""
        versus = self._summary["variants"][name]["versus"]
        change = versus.get(duration_metric(self._summary)) or {}
        ratio: float | None = change.get("ratio")
        return 0.0 if ratio is None else ratio - 1

    def _same_wait(self, versus: Json) -> bool:
        ratio = (versus.get("queue_delay_s") or {}).get("ratio")
        return ratio is None or ratio - 1 < 0.01

    def _side_energy(self, versus: Json, metric: str) -> Iterator[Span]:
        change = versus.get(metric) or {}
        if change.get("ratio") is None or change["verdict"] in OPEN:
            return
        if not is_clear(change):
            yield ", at the same energy"
        else:
            yield f", with {describe_change(metric, change)[0]} energy"


def _interval(metric: str, versus: Json) -> Iterator[Small]:
    change = versus.get(metric) or {}
    if change.get("ratio") is not None and (interval := describe_change(metric, change)[1]):
        yield Small(f" {interval}")

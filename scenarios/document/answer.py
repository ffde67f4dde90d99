"""The answer to the question of a study, in a few sentences.

The first one names the variant that saves most for certain, of those that need no foresight and
whose effect does not come from a model of power limits; then come what may save more, what changes
nothing, and what nobody can tell yet. `wattkeeper.scenarios.analysis.aim` decides what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.aim import SAME, Aim, VariantChange
from wattkeeper.scenarios.analysis.bill import Bill
from wattkeeper.scenarios.analysis.consumption import format_amount
from wattkeeper.scenarios.analysis.resolved.policy_kinds import knows_run_times
from wattkeeper.scenarios.analysis.resolved.randomness import may_draw, seeds_agree
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import (
    currency_of_rent,
    format_value,
    is_elastic,
    oracle_variants,
    shown_metrics,
)
from wattkeeper.scenarios.document.actions import describe_action, scheduler_words
from wattkeeper.scenarios.document.blocks import Name, Paragraph, Small, Span, Strong, Text
from wattkeeper.scenarios.document.elastic import compare_goodput
from wattkeeper.scenarios.document.rankings import describe_savings, rank_in_words
from wattkeeper.scenarios.document.words import describe_change, join_list, name_of, unsigned
from wattkeeper.scenarios.spec.wording import percent
from wattkeeper.sim.cluster_results.accounting import CARBON, COST, ENERGY
from wattkeeper.sim.cluster_results.registry import METRICS
from wattkeeper.sim.results.statistics import FEWEST

FEW: Final = 2
"""Variants that are told about at length."""

MOST_NAMED: Final = 4
"""Variants that a sentence names."""

USES: Final = {
    "energy_j": "all jobs together took",
    "time_s": "their training",
    "jct_s": "mean time of a job from submission to end",
}
"""How the use of the baseline begins."""

MEASURE: Final = (
    "it depends on how far the jobs are bound by compute, which was not measured; "
    "`wattkeeper record` measures one"
)


def write_answer(study: Study, aim: Aim, bill: Bill) -> Iterator[Paragraph]:
    """The sentences: the lead, then further parts of the answer, and the certainty of all."""
    summary = study.summary
    if "saved" in summary:
        yield from describe_savings(summary)
    elif "league" in summary:
        oracles = oracle_variants(study.manifest["scenario"])
        yield from rank_in_words([("", summary["league"])], oracles, list(summary["variants"]))
    else:
        answer = _Answer(study, aim, bill)
        if is_elastic(summary) and len(summary["variants"]) > 1:
            yield from compare_goodput(study)
        else:
            yield answer.lead()
        yield from answer.further()
        if aim.changes:
            yield answer.baseline()
    remark = describe_certainty(study)
    if remark:
        yield Paragraph("note", (remark,))


class _Answer:
    """The sentences on the variants of a study."""

    def __init__(self, study: Study, aim: Aim, bill: Bill) -> None:
        self._summary, self._manifest = study.summary, study.manifest
        self._scenario: Json = study.manifest["scenario"]
        self._aim, self._bill = aim, bill
        self._names = list(self._summary["variants"])
        self._seeds = len(study.manifest["seeds"])
        self._noun = METRICS[aim.metric].noun
        self._lead = self._find_lead()

    def _find_lead(self) -> VariantChange | None:
        """The best variant for certain, else the best by a model; None: none is better."""
        possible = [
            change
            for change in self._aim.changes.values()
            if change.is_better and not change.foresight
        ]
        certain = [change for change in possible if not change.is_modelled]
        return next(iter(certain or possible), None)

    def lead(self) -> Paragraph:
        """What to do, and what that is worth."""
        changes = self._aim.changes.values()
        if self._lead is not None:
            return Paragraph("lead", self._tell_saving(self._lead))
        if not changes:
            return self._tell_use("lead")
        if any(change.judgement == "cannot tell" for change in changes):
            return Paragraph(
                "lead",
                (
                    f"With {self._seeds} seeds nobody can tell whether any variant lowers the "
                    f"{self._noun}: run {FEWEST} or more (--seeds {FEWEST}).",
                ),
            )
        if all(change.judgement in ("same", "noise") for change in changes):
            beyond = " beyond noise" * any(each.judgement == "noise" for each in changes)
            return Paragraph("lead", (f"No variant changes the {self._noun}{beyond}.",))
        baseline = name_of(self._scenario["baseline"], self._names)
        return Paragraph(
            "lead", ("No variant that can be run is better than ", baseline, f" in {self._noun}.")
        )

    def _tell_saving(self, change: VariantChange) -> Text:
        may = " may" if change.is_modelled else ""
        chance = ", with one seed: chance may explain it" * (change.judgement == "one seed")
        return [
            *describe_action(self._scenario, change.name, self._names),
            f"{may} ",
            *self._gain(change, bool(may)),
            chance,
            *self._side(change.name),
            ".",
        ]

    def _gain(self, change: VariantChange, may: bool) -> Iterator[Span]:
        """What is saved, as the rest of a sentence."""
        s = "" if may else "s"
        share = f"{unsigned(abs(change.share))} %"
        versus = self._summary["variants"][change.name]["versus"]
        match self._aim.metric:
            case "jct_s":
                values = [self._mean(name, "jct_s") for name in (change.name, change.baseline)]
                instead = " instead of ".join(format_value(value, "jct_s") for value in values)
                yield f"end{s} jobs "
                yield Strong(f"{share} sooner")
                yield f" ({instead} on average)"
            case "time_s":
                yield f"shorten{s} training by "
                yield Strong(share)
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
                yield Strong(f"{self._amounts(change)}{self._bill.period}")
                yield from self._range(change, f" ({share})")

    def _gain_of_jobs(self, versus: Json, s: str) -> Iterator[Span]:
        """The energy of all jobs, whose cost decides with their time."""
        energy = versus.get("energy_j") or {}
        if energy.get("ratio") is not None and energy["verdict"] not in ("noise", "cannot tell"):
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
            yield Strong(f"{text} {self._noun}")
            yield from [Small(f" {interval}")] * bool(interval)

    def _amounts(self, change: VariantChange) -> str:
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
        low, high = (self._bill.format(bound, self._aim.metric) for bound in change[4:6])
        unit = high.partition(" ")[2]
        first = low.removesuffix(f" {unit}")
        if change.is_modelled:
            yield f" ({first} to {high}: {MEASURE})"
            return
        yield share
        if change.low == change.low and change.low != change.high:
            yield Small(f" [{first}, {high}]")

    def _mean(self, name: str, metric: str) -> float | None:
        value: float | None = self._summary["variants"][name]["metrics"].get(metric, {}).get("mean")
        return value

    def _side(self, name: str) -> Iterator[Span]:
        """What else changes: the time of jobs, or the energy where time decides."""
        versus = self._summary["variants"][name]["versus"]
        is_profiled = bool(self._summary["by"]["workload"])
        if self._aim.metric in ("jct_s", "time_s", "gpu_s_saved"):
            yield from self._side_energy(versus, "energy_j" if is_profiled else ENERGY)
            return
        if self._aim.metric == "goodput":
            return
        metric, subject = ("time_s", "training") if is_profiled else ("jct_s", "jobs")
        change = versus.get(metric) or {}
        if change.get("ratio") is None:
            return
        size = abs(change["ratio"] - 1)
        takes = "takes" if is_profiled else "take"
        text, interval = describe_change(metric, change)
        share = text.rpartition(" ")[0]
        bounds = f" {interval}" if interval else ""
        match change["verdict"]:
            case "cannot tell":
                yield f"; whether {subject} {takes} longer cannot be told with {self._seeds} seeds "
                yield Small(f"({text}{bounds})")
            case "noise":
                yield f"; how long {subject} {takes} does not change beyond noise"
            case _ if size < SAME and not is_profiled and self._same_wait(versus):
                yield ", and jobs wait no longer on average"
            case _ if size < SAME:
                yield f", and {subject} {takes} no longer"
            case _ if is_profiled:
                more = "longer" if change["ratio"] > 1 else "less time"
                yield f", and training takes {share} {more}"
                yield Small(bounds)
            case _:
                more = f"take {share} longer" if change["ratio"] > 1 else f"end {share} sooner"
                yield f", and jobs {more}{self._side_of_cases(name, metric)}"

    def _side_of_cases(self, name: str, metric: str) -> str:
        """The range of a change over the cases of a model."""
        variants = self._summary["variants"]
        cases = [name, *(case for case, _ in self._bill.cases.get(name, ()))]
        versus = [variants[case]["versus"].get(metric) or {} for case in cases]
        changes = [each["ratio"] - 1 for each in versus if each.get("ratio") is not None]
        bounds = dict.fromkeys(f"{percent(bound)} %" for bound in (min(changes), max(changes)))
        return f" ({' to '.join(bounds)} over the same range)" if len(bounds) > 1 else ""

    def _same_wait(self, versus: Json) -> bool:
        ratio = (versus.get("queue_delay_s") or {}).get("ratio")
        return ratio is None or ratio - 1 < 0.01

    def _side_energy(self, versus: Json, metric: str) -> Iterator[Span]:
        change = versus.get(metric) or {}
        if change.get("ratio") is None or change["verdict"] in ("noise", "cannot tell"):
            return
        if abs(change["ratio"] - 1) < SAME:
            yield ", at the same energy"
        else:
            yield f", with {describe_change(metric, change)[0]} energy"

    def further(self) -> Iterator[Paragraph]:
        """What may save more, what knows the future, what changes nothing, what nobody can tell."""
        rest = [change for change in self._aim.changes.values() if change is not self._lead]
        modelled = [change for change in rest if change.is_modelled]
        others = [change for change in rest if not change.is_modelled]
        if is_elastic(self._summary):  # their sentences name the best ones
            return
        groups: list[tuple[Callable[[Sequence[VariantChange]], Text], list[VariantChange]]] = [
            (self._tell_modelled, [each for each in modelled if each.judgement != "same"]),
            (self._tell_better, [c for c in others if c.is_better and not c.foresight]),
            (self._tell_foresight, [c for c in others if c.is_better and c.foresight]),
            (self._tell_open, [c for c in others if c.judgement == "cannot tell"]),
            (
                self._tell_same,
                [c for c in others if c.judgement in ("same", "noise")]
                + [c for c in modelled if c.judgement == "same"],
            ),
            (
                self._tell_worse,
                [c for c in others if c.judgement in ("worse", "one seed") and not c.is_better],
            ),
        ]
        for tell, changes in groups:
            if changes and (text := tell(changes)):
                yield Paragraph("answer", text)

    def _tell_modelled(self, changes: Sequence[VariantChange]) -> Text:
        """The best variant whose effect comes from a model; how many more there are."""
        best = changes[0]
        more = f" {len(changes) - 1} more limits are in the table." if len(changes) > 1 else ""
        if best.judgement == "noise":
            low, high = (self._bill.format(bound, self._aim.metric) for bound in best[4:6])
            action = describe_action(self._scenario, best.name, self._names)
            saves = f" saves anything is open: {low} to {high}{self._bill.period}"
            return ["Whether ", *_lower(action), f"{saves}; {MEASURE}.{more}"]
        if not best.is_better:
            return ["No modelled limit saves anything."]
        return [*self._tell_saving(best), more]

    def _tell_better(self, changes: Sequence[VariantChange]) -> Text:
        """Others that are better: each with what it does to the time of jobs, if they are few."""
        if len(changes) > FEW:
            return ["Less is saved by ", *self._list_changes(changes, saved=True), "."]
        text: list[Span] = []
        for change in changes:
            text += ["; "] * bool(text)
            text += [self._describe(change.name), " ", *self._gain(change, may=False)]
            text += self._side(change.name)
        return [*text, "."]

    def _tell_foresight(self, changes: Sequence[VariantChange]) -> Text:
        best = changes[0]
        knows = "which knows run times in advance"
        if not knows_run_times(self._scenario, best.name):
            knows = "which knows the future and cannot be run"
        name = name_of(best.name, self._names)
        return [name, f", {knows}, ", *self._gain(best, may=False), *self._side(best.name), "."]

    def _tell_open(self, changes: Sequence[VariantChange]) -> Text:
        run = f"; run {FEWEST} or more (--seeds {FEWEST})"
        listed = self._list_changes(changes)
        return [f"Cannot tell with {self._seeds} seeds whether these save: ", *listed, f"{run}."]

    def _tell_same(self, changes: Sequence[VariantChange]) -> Text:
        """Variants without an effect, and the one that ends jobs soonest among them."""
        beyond = " beyond noise" * any(change.judgement == "noise" for change in changes)
        is_one = len(changes) == 1
        verb = "does not change" if is_one else "do not change"
        named = join_list([self._describe(change.name)] for change in changes[:MOST_NAMED])
        left = len(changes) - MOST_NAMED
        more = f" and {left} more" if left > 0 else ""
        text: list[Span] = [*named, f"{more} {verb} the {self._noun}{beyond}"]
        if self._aim.metric != "jct_s" and (soonest := self._soonest(changes)):
            text += ["; ", *soonest]
        return [*text, "."]

    def _soonest(self, changes: Sequence[VariantChange]) -> list[Span]:
        """The variant among them that ends jobs soonest, if one ends them sooner for certain."""
        metric = "time_s" if self._summary["by"]["workload"] else "jct_s"
        sooner = []
        for change in changes:
            versus = self._summary["variants"][change.name]["versus"].get(metric) or {}
            ratio = versus.get("ratio")
            if (
                ratio is not None
                and ratio < 1 - SAME
                and versus["verdict"] in ("lower", "one seed")
            ):
                sooner.append((ratio, change.name, versus))
        if not sooner:
            return []
        _, name, versus = min(sooner, key=lambda each: each[:2])
        share = describe_change(metric, versus)[0].rpartition(" ")[0]
        knows = ", which knows run times in advance," * knows_run_times(self._scenario, name)
        return [name_of(name, self._names), f"{knows} ends jobs ", Strong(f"{share} sooner")]

    def _tell_worse(self, changes: Sequence[VariantChange]) -> Text:
        worst_last = sorted(changes, key=lambda change: -change.saved)
        return ["Worse than the baseline: ", *self._list_changes(worst_last), "."]

    def _list_changes(self, changes: Sequence[VariantChange], *, saved: bool = False) -> list[Span]:
        """Variants, each with its change in per cent, or with what it saves."""
        listed: list[Text] = []
        for change in changes[:MOST_NAMED]:
            sign = -1 if METRICS[self._aim.metric].better == "less" else 1
            share = change.share if saved else sign * change.share
            shown = unsigned(share) if saved else percent(share)
            text = f" ({shown} %)" if share == share else ""
            listed.append([self._describe(change.name), text])
        left = len(changes) - MOST_NAMED
        return join_list(listed + [[f"{left} more"]] * (left > 0))

    def _describe(self, name: str) -> Name:
        return name_of(name, self._names)

    def baseline(self) -> Paragraph:
        """What the baseline uses and how long its jobs take: today, where the log tells that."""
        return self._tell_use("answer")

    def _tell_use(self, role: str) -> Paragraph:
        name = self._scenario["baseline"]
        summary, bill = self._summary, self._bill
        waits = self._manifest.get("waits")
        words = scheduler_words(self._scenario, name) if not summary["by"]["workload"] else ""
        about = f" ({words})" if words else ""
        is_today = bool(waits) and name in waits[0]["runs"] if waits else False
        label = "Today, simulated with " if is_today else "The baseline "
        texts = [
            bill.format(bill.mean(metric, name), metric)
            for metric in (ENERGY, COST, CARBON)
            if metric in bill.amounts
        ]
        amounts = ", ".join(texts) + bill.period if texts else ""
        times = []
        for metric in shown_metrics(summary):
            value = self._mean(name, metric)
            if value is None or not METRICS[metric].noun or (metric == ENERGY and texts):
                continue
            noun = METRICS[metric].noun
            if metric == "queue_delay_s" and is_today and waits:
                recorded = format_value(waits[0]["recorded"]["mean_s"], metric)
                shown = format_value(waits[0]["runs"][name]["mean_s"], metric)
                times.append(f"mean wait {shown} (recorded: {recorded})")
                continue
            rent = f" {currency_of_rent(self._scenario)}" * (metric == "useful_sample_rent")
            if metric == "cost":  # of no meaning alone
                continue
            energy = ""
            if metric == "energy_j":
                energy = f" ({format_amount(value, ENERGY)})"
            times.append(f"{USES.get(metric, noun)} {format_value(value, metric)}{energy}{rent}")
        figures = "; ".join(filter(None, (amounts, ", ".join(times)))) or "no figure is known"
        return Paragraph(
            "lead" if role == "lead" else "answer",
            (label, name_of(name, self._names), f"{about}: {figures}."),
        )


def _interval(metric: str, versus: Json) -> Iterator[Small]:
    change = versus.get(metric) or {}
    if change.get("ratio") is not None and (interval := describe_change(metric, change)[1]):
        yield Small(f" {interval}")


def _lower(text: Text) -> Text:
    """A text that stands within a sentence."""
    first, *rest = text
    if isinstance(first, str):
        return [first[:1].lower() + first[1:], *rest]
    return text


def describe_certainty(study: Study) -> str:
    """The statistical certainty of the figures, given the number of seeds."""
    seeds = len(study.manifest["seeds"])
    if len(study.summary["variants"]) == 1:
        return ""
    if not may_draw(study.manifest, study.summary) or (seeds > 1 and seeds_agree(study.summary)):
        return "Nothing is drawn at random here: other seeds give the same figures."
    if seeds == 1:
        return (
            "One seed: there are no intervals, and chance may explain a difference where anything "
            f"is drawn at random. {FEWEST} seeds give intervals (--seeds {FEWEST})."
        )
    return f"Means of {seeds} seeds, compared seed by seed [95 % interval]."

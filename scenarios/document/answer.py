"""The answer to the question of a study, in a few sentences.

The first one names the variant that saves most for certain, of those that need no foresight and
whose effect does not come from a model of power limits, against the baseline of the scenario; one
under which jobs take far longer (`LONGER`) only if there is no other. Then come what may save more,
what changes nothing, and what nobody can tell yet. `wattkeeper.scenarios.analysis.aim` decides what
counts.
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
    duration_metric,
    format_value,
    is_gain,
    is_profiled,
    mean_of,
    oracle_variants,
)
from wattkeeper.scenarios.document.blocks import Name, Paragraph, Role, Span, Strong, Text
from wattkeeper.scenarios.document.effects import MEASURE, Effects
from wattkeeper.scenarios.document.presenter import Presenter
from wattkeeper.scenarios.document.rankings import rank_in_words
from wattkeeper.scenarios.document.words import (
    describe_action,
    describe_change,
    join_list,
    name_of,
    scheduler_words,
    unsigned,
)
from wattkeeper.scenarios.spec.wording import count, percent
from wattkeeper.sim.cluster_results.accounting import CARBON, COST, ENERGY
from wattkeeper.sim.cluster_results.registry import METRICS
from wattkeeper.sim.results.statistics import FEWEST

LONGER: Final = 0.1
"""By how much jobs may take longer under a variant that is recommended, if another one saves, too;
a share."""

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


def write_answer(study: Study, presenter: Presenter, aim: Aim, bill: Bill) -> Iterator[Paragraph]:
    """The sentences: the lead, then further parts of the answer, and the certainty of all."""
    summary = study.summary
    if "league" in summary:
        oracles = oracle_variants(study.manifest["scenario"])
        yield from rank_in_words([("", summary["league"])], oracles, list(summary["variants"]))
    else:
        answer = _Answer(study, presenter, aim, bill)
        own = list(presenter.tell(study))
        yield from own or answer.on_variants()
        if aim.changes and presenter.compares_runs:
            yield answer.tell_use("answer")
    remark = describe_certainty(study)
    if remark:
        yield Paragraph("note", (remark,))


class _Answer:
    """The sentences on the variants of a study."""

    def __init__(self, study: Study, presenter: Presenter, aim: Aim, bill: Bill) -> None:
        self._summary, self._manifest = study.summary, study.manifest
        self._scenario: Json = study.manifest["scenario"]
        self._presenter, self._aim, self._bill = presenter, aim, bill
        self._names = list(self._summary["variants"])
        self._seeds = len(study.manifest["seeds"])
        self._effects = Effects(study, aim, bill)
        self._lead = self._find_lead()

    def _find_lead(self) -> VariantChange | None:
        """The best variant for certain, else the best by a model; None: none is better.

        Of several, one that makes jobs little longer comes before those that make them far longer.
        """
        possible = [
            change
            for change in self._aim.changes.values()
            if change.is_better
            and not change.foresight
            and change.baseline == self._scenario["baseline"]
        ]
        certain = [change for change in possible if not change.is_modelled] or possible
        short = [change for change in certain if self._effects.lengthening(change.name) <= LONGER]
        return next(iter(short or certain), None)

    @property
    def _leads_surely(self) -> bool:
        """Whether the lead is not about what a model leaves open."""
        is_open = any(each.judgement == "open" for each in self._aim.changes.values())
        return self._lead is not None or not is_open

    @property
    def _is_without_effect(self) -> bool:
        """Whether no variant changes what decides."""
        return all(each.judgement in ("same", "noise") for each in self._aim.changes.values())

    def on_variants(self) -> Iterator[Paragraph]:
        """What to do, then what else there is to say of each variant."""
        yield self._tell_lead()
        yield from self._tell_further()

    def _tell_lead(self) -> Paragraph:
        """What to do, and what that is worth."""
        changes = self._aim.changes.values()
        if self._lead is not None:
            return Paragraph("lead", self._tell_saving(self._lead))
        if not changes:
            return self.tell_use("lead")
        open_ = [change for change in changes if change.judgement == "open"]
        if open_:
            return Paragraph("lead", self._tell_modelled(open_))
        unclear = [change for change in changes if change.judgement == "cannot tell"]
        if unclear:
            named = join_list(([self._describe(each.name)] for each in unclear[:MOST_NAMED]), "or")
            does = "raises" if is_gain(self._aim.metric) else "lowers"
            return Paragraph(
                "lead",
                [
                    f"With {self._seeds} seeds nobody can tell whether ",
                    *named,
                    f" {does} the {self._aim.noun}: run {FEWEST} or more (--seeds {FEWEST}).",
                ],
            )
        if self._is_without_effect:
            beyond = " beyond noise" * any(each.judgement == "noise" for each in changes)
            return Paragraph("lead", (f"No variant changes the {self._aim.noun}{beyond}.",))
        baseline = name_of(self._scenario["baseline"], self._names)
        return Paragraph(
            "lead",
            ("No variant that can be run is better than ", baseline, f" in {self._aim.noun}."),
        )

    def _tell_saving(self, change: VariantChange) -> Text:
        may = " may" if change.is_modelled else ""
        chance = ", with one seed: chance may explain it" * (change.judgement == "one seed")
        return [
            *describe_action(self._scenario, change.name, self._names),
            f"{may} ",
            *self._effects.tell_gain(change, may=bool(may)),
            self._against(change),
            chance,
            *self._effects.tell_side(change.name),
            ".",
        ]

    def _tell_further(self) -> Iterator[Paragraph]:
        """What may save more, what knows the future, what changes nothing, what nobody can tell."""
        rest = [change for change in self._aim.changes.values() if change is not self._lead]
        modelled = [change for change in rest if change.is_modelled]
        others = [change for change in rest if not change.is_modelled]
        groups: list[tuple[Callable[[Sequence[VariantChange]], Text], list[VariantChange]]] = [
            (
                self._tell_modelled,
                [c for c in modelled if c.judgement != "same"] * self._leads_surely,
            ),
            (self._tell_better, [c for c in others if c.is_better and not c.foresight]),
            (self._tell_foresight, [c for c in others if c.is_better and c.foresight]),
            (
                self._tell_open,  # the lead does where there is nothing better
                [c for c in others if c.judgement == "cannot tell"] * (self._lead is not None),
            ),
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
        known = [change for change in changes if change.is_better]
        best = next(iter(known or [each for each in changes if each.judgement == "open"]), None)
        if best is None:
            return ["No modelled limit saves anything."]
        left = len(changes) - 1
        are = "is" if left == 1 else "are"
        more = f" {count(left, 'more limit')} {are} in the table." * bool(left)
        if known:
            return [*self._tell_saving(best), more]
        low, high = (self._bill.format(bound, self._aim.metric) for bound in (best.low, best.high))
        action = describe_action(self._scenario, best.name, self._names)
        saves = f" saves anything is open: {low} to {high}{self._bill.period}; "
        return ["Whether ", *_lower(action), saves, *MEASURE, ".", more]

    def _tell_better(self, changes: Sequence[VariantChange]) -> Text:
        """Others that are better: each with what it does to the time of jobs, if they are few."""
        if len(changes) > FEW:
            return ["Less is saved by ", *self._list_changes(changes, saved=True), "."]
        text: list[Span] = []
        for change in changes:
            text += ["; "] * bool(text)
            text += [self._describe(change.name), " ", *self._effects.tell_gain(change)]
            text.append(self._against(change))
            text += self._effects.tell_side(change.name)
        return [*text, "."]

    def _tell_foresight(self, changes: Sequence[VariantChange]) -> Text:
        best = changes[0]
        knows = "which knows run times in advance"
        if not knows_run_times(self._scenario, best.name):
            knows = "which knows the future and cannot be run"
        name = name_of(best.name, self._names)
        return [
            name,
            f", {knows}, ",
            *self._effects.tell_gain(best),
            self._against(best),
            *self._effects.tell_side(best.name),
            ".",
        ]

    def _tell_open(self, changes: Sequence[VariantChange]) -> Text:
        run = f"; run {FEWEST} or more (--seeds {FEWEST})"
        listed = self._list_changes(changes)
        return [f"Cannot tell with {self._seeds} seeds whether these save: ", *listed, f"{run}."]

    def _tell_same(self, changes: Sequence[VariantChange]) -> Text:
        """Variants without an effect, and the one that ends jobs soonest among them."""
        beyond = " beyond noise" * any(change.judgement == "noise" for change in changes)
        is_one = len(changes) == 1
        verb = "does not change" if is_one else "do not change"
        named = join_list(
            [self._describe(change.name), self._against(change)] for change in changes[:MOST_NAMED]
        )
        left = len(changes) - MOST_NAMED
        more = f" and {left} more" if left > 0 else ""
        text: list[Span] = [*named, f"{more} {verb} the {self._aim.noun}{beyond}"]
        soonest = self._soonest(changes) if self._aim.metric != "jct_s" else []
        if self._is_without_effect:  # the lead says it
            return [*soonest, "."] if soonest else []
        return [*text, *["; "] * bool(soonest), *soonest, "."]

    def _soonest(self, changes: Sequence[VariantChange]) -> list[Span]:
        """The variant among them that ends jobs soonest, if one ends them sooner for certain."""
        metric = duration_metric(self._summary)
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
        if metric == "time_s":
            return [name_of(name, self._names), " shortens training by ", Strong(share)]
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
            text = f" ({shown} %{self._against(change)})" if share == share else ""
            listed.append([self._describe(change.name), text])
        left = len(changes) - MOST_NAMED
        return join_list(listed + [[f"{left} more"]] * (left > 0))

    def _against(self, change: VariantChange) -> str:
        """What a variant is compared with, if that is not the baseline of the scenario."""
        is_own = change.baseline != self._scenario["baseline"]
        return f" against {change.baseline}" if is_own else ""

    def _describe(self, name: str) -> Name:
        return name_of(name, self._names)

    def tell_use(self, role: Role) -> Paragraph:
        """What the baseline uses and how long its jobs take: today, where the log tells that."""
        name = self._scenario["baseline"]
        summary, bill = self._summary, self._bill
        waits = self._manifest.get("waits") or []
        is_today = any(name in part["runs"] for part in waits[:1])
        words = scheduler_words(self._scenario, name) if not is_profiled(summary) else ""
        about = f" ({words})" if words else ""
        label = "Today, simulated with " if is_today else "The baseline "
        texts = [
            bill.format(bill.mean(metric, name), metric)
            for metric in (ENERGY, COST, CARBON)
            if metric in bill.amounts
        ]
        amounts = ", ".join(texts) + bill.period if texts else ""
        times = []
        for metric in self._presenter.metrics(summary):
            value, noun = mean_of(name, metric, summary), METRICS[metric].noun
            is_told = metric == ENERGY and texts
            if value is None or not noun or is_told or metric == "cost":  # alone it means nothing
                continue
            if metric == "queue_delay_s" and is_today:
                recorded = format_value(waits[0]["recorded"]["mean_s"], metric)
                shown = format_value(waits[0]["runs"][name]["mean_s"], metric)
                times.append(f"mean wait {shown} (recorded: {recorded})")
                continue
            rent = f" {currency_of_rent(self._scenario)}" * (metric == "useful_sample_rent")
            energy = f" ({format_amount(value, ENERGY)})" if metric == "energy_j" else ""
            times.append(f"{USES.get(metric, noun)} {format_value(value, metric)}{energy}{rent}")
        figures = "; ".join(filter(None, (amounts, ", ".join(times)))) or "no figure is known"
        return Paragraph(role, (label, name_of(name, self._names), f"{about}: {figures}."))


def _lower(text: Text) -> Text:
    """A text that stands within a sentence."""
    first, *rest = text
    if isinstance(first, str):
        return [first[:1].lower() + first[1:], *rest]
    return text


def describe_certainty(study: Study, points: Sequence[Json] = ()) -> str:
    """The statistical certainty of the figures, given the number of seeds.

    `points`: the summaries of all points of a sweep, of which `study` is the first.
    """
    seeds, summaries = len(study.manifest["seeds"]), points or [study.summary]
    if len(study.summary["variants"]) == 1:
        return ""
    agree = all(map(seeds_agree, summaries))
    if agree and (seeds > 1 or not may_draw(study.manifest, study.summary)):
        return "Nothing is drawn at random here: other seeds give the same figures."
    if seeds == 1:
        return (
            "One seed: there are no intervals, and chance may explain a difference where anything "
            f"is drawn at random. {FEWEST} seeds give intervals (--seeds {FEWEST})."
        )
    return f"Means of {seeds} seeds, compared seed by seed [95 % interval]."

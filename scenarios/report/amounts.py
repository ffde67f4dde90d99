"""Sentences on energy, money and emissions of clusters, for a year where jobs allow it."""

import math
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from wattkeeper.scenarios.analysis.consumption import (
    DIGITS,
    MINOR,
    SAME,
    UNCHANGED,
    Amounts,
    Estimate,
    currency,
    describe_window,
    describe_year,
    estimate,
    format_amount,
    read_amounts,
)
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.report.markup import tag
from wattkeeper.scenarios.report.phrases import Words, join_list, typeset_minus
from wattkeeper.scenarios.spec.case_names import base_of
from wattkeeper.sim.cluster_results.accounting import CARBON, COST, ENERGY
from wattkeeper.traces.gpus.model import read_gpu_types

ByDirection = Mapping[str, list[list[Words]]]
"""Amounts in words, by `less` and `more`."""

NOUNS: Final = {ENERGY: "energy", COST: "cost of electricity", CARBON: "emissions"}


class Bill(NamedTuple):
    """What clusters consume: amounts by metric, of a year where that is known.

    Attributes:
        amounts: Values by metric, variant and seed.
        currency: Unit of money.
        of_year: What amounts of a year are extrapolated from; empty: they are those of the window.
        window: Its length, and what it is.
        baselines: The baseline of each variant.
        cases: The other cases of a variant whose power limits are modelled, with their baselines.
        prefix: What the amounts are of, where sentences also state the energy of jobs.
    """

    amounts: Mapping[str, Amounts]
    currency: str | None
    of_year: list[str]
    window: str
    baselines: Mapping[str, str]
    cases: Mapping[str, list[tuple[str, str]]]
    prefix: str | None = None

    def format(self, value: float, metric: str) -> str:
        """An amount, rounded if it is extrapolated."""
        digits = DIGITS if self.of_year else None
        return typeset_minus(format_amount(value, metric, self.currency, digits=digits))

    @property
    def period(self) -> str:
        """The time that amounts are of, as the end of a phrase."""
        return " a year" if self.of_year else ""

    def rank_by(self) -> tuple[str, Mapping[str, float]] | None:
        """What variants are ranked by, and its mean by variant: emissions, else money, else energy.

        None where no amount is known.
        """
        for metric in (CARBON, COST, ENERGY):
            if metric in self.amounts:
                by_seed = self.amounts[metric]
                return NOUNS[metric], {name: fmean(by_seed[name].values()) for name in by_seed}
        return None

    def describe_use(self, name: str) -> list[Words]:
        """What a variant uses; nothing where that is unknown."""
        uses: list[list[Words]] = [
            [tag("strong", self.format(use.mean, metric)), self._range(use, metric, 1)]
            for metric, by_variant in self.amounts.items()
            if (use := estimate(by_variant[name]))
        ]
        return [self.prefix, *join_list(uses), self.period] if uses else []

    def describe_difference(self, name: str, baseline: str, label: Element) -> list[list[Words]]:
        """Clauses on what a variant uses less or more than its baseline."""
        saved: dict[str, list[list[Words]]] = {"less": [], "more": []}
        ranges: dict[str, list[list[Words]]] = {"less": [], "more": []}
        possible: dict[str, list[list[Words]]] = {"less": [], "more": []}
        same: list[list[Words]] = []
        noise: list[list[Words]] = []
        shown_share = ""
        for metric, by_variant in self.amounts.items():
            change = self._estimate_change(name, baseline, by_variant)
            whole = estimate(by_variant[baseline]).mean
            has_cases = name in self.cases and change.has_range
            share = abs(change.mean / whole) if whole else math.inf
            is_same = change.mean == 0 or share <= (SAME if metric == ENERGY else UNCHANGED)
            if is_same and not has_cases:
                same.append([NOUNS[metric]])
                continue
            leaning = change.mean or max(change.low, change.high, key=abs)
            sign = -1 if leaning < 0 else 1
            text = self.format(abs(change.mean), metric)
            interval = self._range(change, metric, sign)
            if change.low < 0 < change.high:
                noise.append(
                    [NOUNS[metric], f" ({text} {'less' if sign < 0 else 'more'}", interval, ")"]
                )
                continue
            direction = "less" if sign < 0 else "more"
            if is_same:
                bound = self.format(max(abs(change.low), abs(change.high)), metric)
                possible[direction].append([tag("strong", bound)])
                continue
            of_baseline = f"{100 * share:.1f} %" if whole > 0 else shown_share
            percentage = f" ({of_baseline})" if of_baseline != shown_share else None
            shown_share = of_baseline if metric == ENERGY else shown_share
            if metric != ENERGY and self._is_small(name, baseline, metric):
                percentage = f" ({_two_digits(share)} %, small)"
            if name in self.cases:
                ranges[direction] += self._span(change, metric)
                interval = None
            saved[direction].append([tag("strong", text), interval, percentage])
        clauses = list(self._list_savings(saved, ranges, possible, label))
        if same:
            as_baseline: list[Words] = [] if clauses else [" as ", label]
            clauses.append(["the same ", *join_list(same), *as_baseline])
        if noise:
            beyond = "what the model leaves open" if name in self.cases else "noise"
            clauses.append([f"no difference beyond {beyond} in ", *join_list(noise)])
        if clauses:
            clauses[0].insert(0, self.prefix)
        return clauses

    def _list_savings(
        self, saved: ByDirection, ranges: ByDirection, possible: ByDirection, label: Element
    ) -> Iterator[list[Words]]:
        """Clauses on amounts in the middle case, with their ranges, and on those of other cases."""
        than: list[Words] = [f"{self.period} than ", label]
        for direction, items in saved.items():
            if items:
                middle = "in the middle case " if ranges[direction] else None
                over = [" (over the cases ", *join_list(ranges[direction]), ")"]
                small = tag("small", *over) if ranges[direction] else None
                yield [middle, *join_list(items), f" {direction}", *than, small]
                than = []
        for direction, items in possible.items():
            if items:
                usual: list[Words] = [" as ", label] if than else []
                amounts = [*join_list(items), f" {direction}{self.period} over the cases"]
                yield ["the same energy in the middle case", *usual, "; up to ", *amounts]
                than = []

    def _estimate_change(self, name: str, baseline: str, by_variant: Amounts) -> Estimate:
        """The change of a variant; its range is that of all its cases."""
        changes = [
            estimate(by_variant[own], by_variant[other])
            for own, other in ((name, baseline), *self.cases.get(name, ()))
        ]
        if len(changes) == 1:
            return changes[0]
        bounds = [bound for change in changes for bound in change if not math.isnan(bound)]
        return Estimate(changes[0].mean, min(bounds), max(bounds))

    def _range(self, change: Estimate, metric: str, sign: int) -> Element | None:
        """The 95 % interval in the direction of the change."""
        if not change.has_range:
            return None
        low, high = sorted(sign * bound for bound in (change.low, change.high))
        first, last = self.format(low, metric), self.format(high, metric)
        unit = last.partition(" ")[2]
        return tag("small", f" [{first.removesuffix(f' {unit}')}, {last}]")

    def _span(self, change: Estimate, metric: str) -> Iterator[list[Words]]:
        """The range over the cases, without sign."""
        if change.has_range:
            low, high = sorted(map(abs, (change.low, change.high)))
            first, last = self.format(low, metric), self.format(high, metric)
            unit = last.partition(" ")[2]
            yield [f"{first.removesuffix(f' {unit}')} to {last}"]

    def explain(self) -> Iterator[str]:
        """What the amounts are of, and their ranges."""
        if self.cases:
            yield (
                f"{', '.join(self.cases)}: three cases (low, middle, high) of how far jobs are "
                "bound by compute, which was not measured; it decides what a power limit changes. "
                "Single jobs deviate by up to "
                f"{100 * read_gpu_types().pooled.range_error:.2g} % besides, which these ranges "
                "do not include."
            )
        if not self.amounts:
            return
        yield (
            "Energy of the cluster is that of its GPUs times the power usage effectiveness (pue); "
            "processors, memory and networks of nodes are not counted."
        )
        yield from self.of_year or (
            f"Amounts are over the window of {self.window}. A year is extrapolated where jobs are "
            "submitted at given times over seven days or more.",
        )
        pairs = [(name, base) for name, base in self.baselines.items() if name != base]
        rates = [metric for metric in self.amounts if metric != ENERGY]
        if any(self._is_small(*pair, metric) for pair in pairs for metric in rates):
            yield (
                f"small: below {100 * MINOR:g} % with the same energy; so much may come from the "
                "hours at which jobs happen to run."
            )

    def _is_small(self, name: str, baseline: str, metric: str) -> bool:
        """Whether costs or emissions differ by little, with the same energy and no interval."""
        shares = {}
        for each in (ENERGY, metric):
            change = self._estimate_change(name, baseline, self.amounts[each])
            whole = estimate(self.amounts[each][baseline]).mean
            if change.has_range or not whole:
                return False
            shares[each] = abs(change.mean / whole)
        return shares[ENERGY] <= SAME and UNCHANGED < shares[metric] <= MINOR


def _two_digits(share: float) -> str:
    """A share in per cent, below 0.1 % with one digit that is not 0."""
    return f"{100 * share:.1f}" if share >= 5e-4 else f"{100 * share:.1g}"


def read_bill(study: Study) -> Bill:
    """The amounts of a study."""
    manifest = study.manifest
    variants = study.summary["variants"]
    cases: dict[str, list[tuple[str, str]]] = {}
    for name, about in variants.items():
        base = base_of(name)
        if base is not None and base in variants:
            cases.setdefault(base, []).append((name, about["versus"]["baseline"]))
    amounts = read_amounts(study)
    profiled = bool(study.summary["by"]["workload"])
    if profiled and "electricity" not in manifest:
        amounts = {}
    return Bill(
        amounts,
        currency(manifest),
        list(describe_year(manifest, study.summary)),
        describe_window(manifest),
        {name: about["versus"]["baseline"] for name, about in variants.items()},
        cases,
        "cluster: " if profiled else None,
    )

"""What the clusters of variants consume: amounts, their changes, and ranges over modelled cases."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from wattkeeper.scenarios.analysis.consumption import (
    DIGITS,
    Amounts,
    Estimate,
    currency,
    describe_window,
    describe_year,
    estimate,
    format_amount,
    read_amounts,
)
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import is_profiled
from wattkeeper.scenarios.spec.case_names import base_of
from wattkeeper.sim.cluster_results.accounting import CARBON
from wattkeeper.traces.gpus.model import read_gpu_types

CONSTANT: Final = re.compile(r"[\d.e+-]+ g/kWh")
"""How the emissions of a kWh are described where they do not vary."""


class Bill(NamedTuple):
    """What clusters consume: amounts by metric, of a year where that is known.

    Attributes:
        amounts: Values by metric (energy, cost, emissions), variant and seed; empty where the
            energy of clusters is not what a study is about.
        currency: Unit of money.
        of_year: What amounts of a year are extrapolated from; empty: they are those of the window.
        window: Its length, and what it is.
        cases: The other cases of a variant whose power limits are modelled, with their baselines.
        is_proportional: Whether emissions are a constant times energy, in all variants alike.
    """

    amounts: Mapping[str, Amounts]
    currency: str | None
    of_year: list[str]
    window: str
    cases: Mapping[str, list[tuple[str, str]]]
    is_proportional: bool

    def format(self, value: float, metric: str, sign: str = "") -> str:
        """An amount, rounded if it is extrapolated."""
        digits = DIGITS if self.of_year else None
        return format_amount(value, metric, self.currency, sign, digits)

    def format_range(
        self, low: float, high: float, metric: str, sign: str = "", *, is_modelled: bool
    ) -> str:
        """A range over the cases of a model, as `1 to 2 MWh`; or an interval, as `[1, 2 MWh]`."""
        first, last = (self.format(bound, metric, sign) for bound in (low, high))
        first = first.removesuffix(f" {last.partition(' ')[2]}")
        return f"{first} to {last}" if is_modelled else f"[{first}, {last}]"

    @property
    def period(self) -> str:
        """The time that amounts are of, as the end of a phrase."""
        return " a year" if self.of_year else ""

    def mean(self, metric: str, name: str) -> float:
        """The amount of a variant, mean over seeds."""
        return estimate(self.amounts[metric][name]).mean

    def explain(self) -> Iterator[str]:
        """What the amounts are of, and their ranges."""
        if self.cases:
            yield (
                f"{', '.join(self.cases)}: three cases (low, middle, high) of how far jobs are "
                "bound by compute, which was not measured; it decides what a power limit changes. "
                "Low and high are bounds, and what is best in one of them is no recommendation. "
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


def read_bill(study: Study) -> Bill:
    """The amounts of a study."""
    manifest = study.manifest
    amounts = read_amounts(study)
    if is_profiled(study.summary) and "electricity" not in manifest:
        amounts = {}
    return Bill(
        amounts,
        currency(manifest),
        list(describe_year(manifest, study.summary)),
        describe_window(manifest),
        read_cases(study),
        CARBON in amounts and _emits_alike(manifest),
    )


def _emits_alike(manifest: Manifest) -> bool:
    """Whether a kWh emits the same at all times and in all variants."""
    rates = {tariff.get("carbon", "") for tariff in manifest.get("electricity", {}).values()}
    return len(rates) == 1 and bool(CONSTANT.fullmatch(rates.pop()))


def read_cases(study: Study) -> dict[str, list[tuple[str, str]]]:
    """The other cases of variants whose power limits are modelled, each with its baseline."""
    variants = study.summary["variants"]
    cases: dict[str, list[tuple[str, str]]] = {}
    for name, about in variants.items():
        base = base_of(name)
        if base is not None and base in variants:
            cases.setdefault(base, []).append((name, about["versus"]["baseline"]))
    return cases


def change_of(
    amounts: Amounts, name: str, baseline: str, cases: Mapping[str, list[tuple[str, str]]]
) -> Estimate:
    """The change of a variant against its baseline; its range is that of all its cases."""
    changes = [
        estimate(amounts[own], amounts[other])
        for own, other in ((name, baseline), *cases.get(name, ()))
    ]
    if len(changes) == 1:
        return changes[0]
    bounds = [bound for change in changes for bound in change if not math.isnan(bound)]
    return Estimate(changes[0].mean, min(bounds), max(bounds))

"""What a study is about: the metric that decides, and what each variant changes in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Final, Literal, NamedTuple

from wattkeeper.scenarios.analysis.bill import Bill, change_of
from wattkeeper.scenarios.analysis.consumption import Amounts, read_values
from wattkeeper.scenarios.analysis.resolved.policy_kinds import knows_run_times
from wattkeeper.scenarios.analysis.resolved.randomness import may_draw
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import is_gain, oracle_variants
from wattkeeper.scenarios.spec.case_names import base_of
from wattkeeper.sim.cluster_results.registry import METRICS
from wattkeeper.sim.results.statistics import Verdict, versus

SAME: Final = 5e-4
"""Share of the baseline's value up to which a difference is none: 0.0 %."""

Judgement = Literal["better", "worse", "same", "noise", "cannot tell", "one seed", "open"]


class VariantChange(NamedTuple):
    """What a variant changes in the metric that decides, against its baseline.

    Attributes:
        name: The variant.
        baseline: What it is compared with.
        saved: By how much it is better, in the unit of the metric; below 0: worse.
        share: The same, of the baseline's value; NaN where that is 0.
        low: The least of the range of `saved`; NaN where there is none.
        high: The most of it.
        judgement: What can be said; `one seed`: better or worse, and chance may explain it; `open`:
            the cases of a model leave open which.
        is_modelled: Whether the range is that of the cases of a model: nothing was measured.
        foresight: Whether its policies know the future.
    """

    name: str
    baseline: str
    saved: float
    share: float
    low: float
    high: float
    judgement: Judgement
    is_modelled: bool
    foresight: bool

    @property
    def is_better(self) -> bool:
        """Whether it is better, by all that is known."""
        return self.judgement == "better" or (self.judgement == "one seed" and self.saved > 0)


class Aim(NamedTuple):
    """What decides between variants.

    Attributes:
        metric: The metric, as in `wattkeeper.sim.cluster_results.registry`.
        changes: By variant, the best first; without baselines and cases of models.
    """

    metric: str
    changes: Mapping[str, VariantChange]

    @property
    def noun(self) -> str:
        """The metric in words."""
        return METRICS[self.metric].noun


def read_aim(study: Study, bill: Bill, metric: str) -> Aim:
    """What each variant of a study changes in the metric that decides."""
    manifest, summary = study.manifest, study.summary
    amounts = bill.amounts.get(metric) or read_values(study, [metric]).get(metric, {})
    random = may_draw(manifest, summary)
    oracles = oracle_variants(manifest["scenario"])
    foresees = {
        name: name in oracles or knows_run_times(manifest["scenario"], name)
        for name in summary["variants"]
    }
    changes = []
    for name, about in summary["variants"].items():
        baseline = about["versus"]["baseline"]
        if name == baseline or base_of(name) in summary["variants"]:
            continue
        if name not in amounts or baseline not in amounts:
            continue
        foresight = foresees[name] and not foresees[baseline]
        changes.append(_judge(metric, name, baseline, amounts, bill, foresight, random))
    changes.sort(key=lambda change: -change.saved)
    return Aim(metric, {change.name: change for change in changes})


def _judge(
    metric: str,
    name: str,
    baseline: str,
    amounts: Amounts,
    bill: Bill,
    foresight: bool,
    random: bool,
) -> VariantChange:
    change = change_of(amounts, name, baseline, bill.cases)
    sign = 1 if is_gain(metric) else -1
    saved = sign * change.mean
    low, high = sorted((sign * change.low, sign * change.high))
    whole = abs(fmean(amounts[baseline].values()))
    share = saved / whole if whole else math.nan
    is_modelled = name in bill.cases and change.has_range
    judgement: Judgement = "better" if saved > 0 else "worse"
    if is_modelled:
        if low < 0 < high and max(-low, high) > SAME * whole:
            judgement = "open"
        elif max(abs(low), abs(high)) <= SAME * whole:
            judgement = "same"
    elif not saved or abs(share) <= SAME:
        judgement = "same"
    else:
        judgement = _judge_seeds(amounts[name], amounts[baseline], judgement, sign, random)
    return VariantChange(name, baseline, saved, share, low, high, judgement, is_modelled, foresight)


def _judge_seeds(
    values: Mapping[int, float],
    baseline: Mapping[int, float],
    judgement: Judgement,
    sign: int,
    random: bool,
) -> Judgement:
    """The judgement on a change, given the values of each seed.

    Where the mean of the ratios has another sign than the difference of the means, neither counts.
    """
    if values.keys() != baseline.keys():
        return "cannot tell"
    verdict: Verdict = versus(list(values.values()), [baseline[s] for s in values])["verdict"]
    if verdict == "noise" or verdict == "cannot tell":
        return verdict
    if verdict == "one seed":
        return "one seed" if random else judgement
    is_higher = verdict == "higher"
    return judgement if is_higher == ((judgement == "better") == (sign > 0)) else "noise"

"""Writes the scenario of a study: YAML with comments, to be edited and run again."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wattkeeper.scenarios.analysis.resolved.policy_kinds import RECORDED
from wattkeeper.scenarios.log_study.asked import AskedVariant
from wattkeeper.scenarios.log_study.electricity import StudyRates
from wattkeeper.scenarios.log_study.nodes import ASSUMED_SLEEP, DescribedCluster
from wattkeeper.scenarios.log_study.partitions import Partitions
from wattkeeper.scenarios.spec.sections.gpu import StatedGpu
from wattkeeper.scenarios.spec.sections.section import Section

HEADER: Final = "# Written by `wattkeeper study`."
"""First line of the scenario."""
QUESTION: Final = "What would power limits, sleeping nodes or another scheduler save?"
WIDTH: Final = 100
PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
WORDS: Final = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
"""Plain words that YAML does not read as texts."""


class StudyPlan(NamedTuple):
    """What a scenario of a study holds.

    Attributes:
        name: Of the results.
        trace: Folder of the imported log, relative to that of the scenario.
        cluster: The nodes.
        rates: What electricity costs and emits.
        schedulers: Variants that differ in their scheduler alone.
        baseline: The one that the others are compared with, and under which the rest varies; empty
            until it is known, unless it is stated.
        why: How the baseline was chosen.
        fractions: Power limits, as fractions of the highest; empty until the baseline is known.
        is_final: Whether the variants that vary power are there.
        notes: What was filled into the trace, in lines.
        partitions: Those of the log, where they form several queues.
        asked: Variants that options ask for, once the baseline is known.
    """

    name: str
    trace: str
    cluster: DescribedCluster
    rates: StudyRates
    schedulers: Sequence[str] = ()
    baseline: str = ""
    why: str = ""
    fractions: Sequence[float] = ()
    is_final: bool = False
    notes: Sequence[str] = ()
    partitions: Partitions = MappingProxyType({})
    asked: Sequence[AskedVariant] = ()


def write_scenario(plan: StudyPlan, path: Path, results: Path) -> str:
    """The text of the scenario file at `path`, whose results go to a folder."""
    return "\n".join(_lines(plan, path, results)) + "\n"


def _lines(plan: StudyPlan, path: Path, results: Path) -> Iterator[str]:
    yield HEADER
    yield "# Edit it and run it again; its paths are relative to this file:"
    yield f"#   wattkeeper run {_quote_path(path)} --out {_quote_path(results)}"
    yield f"name: {to_yaml(plan.name)}"
    yield f"question: {to_yaml(QUESTION)}"
    yield from _cluster_lines(plan.cluster, plan.partitions)
    yield "workload:"
    yield "  kind: trace"
    yield from _comment(*plan.notes, indent=2)
    yield f"  trace: {to_yaml(plan.trace)}"
    yield from _comment(
        "Jobs that cannot run on these nodes are left out of all variants, and counted.", indent=2
    )
    yield "  unusable: drop"
    if plan.rates.section is not None:
        yield f"electricity: {to_yaml(_stated(plan.rates.section))}"
    if signals := {name: each for one in plan.asked for name, each in one.signals.items()}:
        yield "signals:"
        yield from (f"  {to_yaml(name)}: {to_yaml(each)}" for name, each in signals.items())
    yield from _comment("The scheduler of all variants that name no other.", plan.why)
    yield f"policies: {{select: {plan.baseline}}}"
    yield "variants:"
    if plan.is_final:
        yield from _power_lines(plan)
    for asked in plan.asked:
        yield from _comment(*asked.why, indent=2)
        yield f"  {to_yaml(asked.name)}: {to_yaml(asked.keys)}"
    for name in plan.schedulers:
        if name == RECORDED:
            yield from _comment("Each job at its recorded start.", indent=2)
        yield f"  {name}: {{policies: {{select: {name}}}}}"
    yield f"baseline: {plan.baseline}"
    yield from _comment("Nothing is drawn at random: more seeds would give the same results.")
    yield "seeds: 1"


def _quote_path(path: Path) -> str:
    text = str(path)
    return shlex.quote(text) if text.isprintable() else to_yaml(text)


def _cluster_lines(cluster: DescribedCluster, partitions: Partitions) -> Iterator[str]:
    yield "cluster:"
    yield "  nodes:"
    for group in cluster.stated.nodes:
        nodes = {"gpu": group.gpu, "count": group.count, "gpus": group.gpus}
        yield f"    - {to_yaml(nodes)}"
    if partitions:
        yield from _comment(
            "GPU types of the nodes of each partition, as its jobs name them. Each "
            "partition has a queue; those that share a type share one.",
            indent=2,
        )
        yield "  partitions:"
        for name, types in partitions.items():
            yield f"    {to_yaml(name)}: [{', '.join(map(to_yaml, types))}]"
    yield from _comment(
        "Power of one GPU, W. Jobs with measured energy draw what was measured.", indent=2
    )
    yield "  power:"
    for name, power in cluster.power.items():
        yield from _comment(power.source, indent=4)
        stated: dict[str, object] = {"idle_w": power.idle_w, "busy_w": power.busy_w}
        model = power.stated
        if model is not None:
            stated["model"] = _stated(model) if isinstance(model, StatedGpu) else model
        yield f"    {to_yaml(name)}: {to_yaml(stated)}"
    yield f"  pue: {to_yaml(cluster.stated.pue)}"


def _power_lines(plan: StudyPlan) -> Iterator[str]:
    if plan.fractions:
        models = [power.model for power in plan.cluster.power.values()]
        swept = all(model is not None and model.sweep for model in models)
        what = "modelled: low, middle and high case of how far jobs are bound by compute."
        what = "what the stated sweeps say." if swept else what
        yield from _comment(
            "Power limits, as fractions of the highest of each GPU type. What they change is "
            f"{what}",
            indent=2,
        )
    for fraction in plan.fractions:
        tune = {"kind": "power-fraction", "fraction": fraction}
        yield f"  {limit_name(fraction)}: {{policies: {{tune: {to_yaml(tune)}}}}}"
    sleep = plan.cluster.stated.sleep
    assumed = "" if sleep else " Assumed, not measured: state `sleep` in the file of nodes."
    yield from _comment(f"Free nodes sleep.{assumed}", indent=2)
    keys = {"sleep": _stated(sleep or ASSUMED_SLEEP)}
    yield f"  sleep: {{cluster: {to_yaml(keys)}}}"


def limit_name(fraction: float) -> str:
    """The name of the variant with a power limit."""
    return f"limit-{100 * fraction:.0f}"


def _stated(section: Section) -> dict[str, Any]:
    return section.model_dump(mode="json", exclude_none=True)


def _comment(*lines: str, indent: int = 0) -> Iterator[str]:
    for line in lines:
        start = f"{' ' * indent}# "
        yield from textwrap.wrap(
            line,
            WIDTH,
            initial_indent=start,
            subsequent_indent=start,
            break_long_words=False,
            break_on_hyphens=False,
        )


def to_yaml(value: object) -> str:
    """A value in one line of YAML."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{to_yaml(key)}: {to_yaml(each)}' for key, each in value.items())}}}"
    if isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_yaml, value))}]"
    if isinstance(value, float):
        return f"{value:.15g}"
    return json.dumps(value, ensure_ascii=not str(value).isprintable())

"""Report on a trace of kind ``node-events``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wattkeeper.policies.json_types import Json
from wattkeeper.traces.node_events import NodeEvent, absent_at_first, add_repairs, node_events
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    from rich.console import Console

DAY_S = 86400.0


def report(trace: Trace) -> Json:
    """How often nodes are lost, and for how long.

    Returns:
        ``nodes``: names, and nodes that were drawn without an event; ``most_up``: nodes that are up
        at once at most; ``span_s``: time of the last event; ``losses``, ``returns``, ``notices``:
        their number; ``node_days``: time that nodes are up, days; ``losses_per_1000_node_days``;
        ``together``: share of the losses that happen at the moment of another one; ``mean_gap_s``:
        between moments of losses, and ``gap_variation``: standard deviation over mean of it (1 if
        losses are independent); ``mean_away_s``: from a loss to the return of the same node;
        ``causes``: losses by cause; ``racks``: their number; ``slowdowns``: how often a node
        becomes slow; ``mean_factor``: time of an iteration then over that at full pace;
        ``mean_slow_s``: until it is as slow no more.
        Events that follow from ``repair_s`` count, up to the last one that is recorded. None where
        there is nothing to average.
    """
    recorded = node_events(trace.tables["node-events"])
    span_s = recorded[-1].time_s
    events = [event for event in add_repairs(recorded) if event.time_s <= span_s]
    absent = set(absent_at_first(events))
    names = {event.node for event in events}
    up_since = dict.fromkeys(names - absent, 0.0)
    down_since: dict[str, float] = {}
    up_s, most_up, away = 0.0, len(up_since), []
    for event in events:
        if event.event == "down":
            up_s += event.time_s - up_since.pop(event.node)
            down_since[event.node] = event.time_s
        elif event.event == "up":
            up_since[event.node] = event.time_s
            if event.node in down_since:
                away.append(event.time_s - down_since.pop(event.node))
        most_up = max(most_up, len(up_since))
    up_s += math.fsum(span_s - since_s for since_s in up_since.values())
    unnamed = max(0, int(trace.parameters.get("nodes", 0)) - len(names))
    up_s += unnamed * span_s
    lost_s = [event.time_s for event in events if event.event == "down"]
    moments = Counter(lost_s)
    gaps = np.diff(sorted(moments))
    kinds = Counter(event.event for event in events)
    node_days = up_s / DAY_S
    return {
        "nodes": len(names) + unnamed,
        "most_up": most_up + unnamed,
        "span_s": span_s,
        "losses": kinds["down"],
        "returns": len(away),
        "notices": kinds["notice"],
        "node_days": node_days,
        "losses_per_1000_node_days": 1000 * kinds["down"] / node_days if node_days else None,
        "together": sum(n for n in moments.values() if n > 1) / len(lost_s) if lost_s else None,
        "mean_gap_s": float(gaps.mean()) if len(gaps) else None,
        "gap_variation": float(gaps.std() / gaps.mean()) if len(gaps) > 1 else None,
        "mean_away_s": math.fsum(away) / len(away) if away else None,
        "causes": dict(Counter(e.cause for e in events if e.event == "down" and e.cause)),
        "racks": len({event.rack for event in events if event.rack}),
        **_report_slow(events),
    }


def _report_slow(events: Sequence[NodeEvent]) -> Json:
    """How often nodes become slow, how slow, and for how long."""
    since: dict[str, float] = {}
    lengths, factors = [], []
    for event in events:
        if event.event in ("down", "degraded") and event.node in since:
            lengths.append(event.time_s - since.pop(event.node))
        if event.event == "degraded" and event.factor > 1:
            since[event.node] = event.time_s
            factors.append(event.factor)
    return {
        "slowdowns": len(factors),
        "mean_factor": math.fsum(factors) / len(factors) if factors else None,
        "mean_slow_s": math.fsum(lengths) / len(lengths) if lengths else None,
    }


def render(report: Json, console: Console) -> None:
    """Print the report."""

    def number(name: str, unit: str = "", digits: str = ".4g") -> str:
        value = report[name]
        return "-" if value is None else f"{value:{digits}}{unit}"

    lines = [
        f"{report['nodes']} nodes, at most {report['most_up']} at once, over "
        f"{report['span_s'] / DAY_S:.3g} days",
        f"{report['losses']} losses in {report['node_days']:.4g} node-days: "
        f"{number('losses_per_1000_node_days')} per 1,000",
        f"{number('together', digits='.0%')} of the losses at the moment of another one",
        f"between moments of losses: mean {number('mean_gap_s', ' s')}, variation "
        f"{number('gap_variation', digits='.2f')} (1: independent)",
        f"{report['returns']} nodes came back under their name, after {number('mean_away_s', ' s')}"
        " on average",
        f"{report['notices']} notices",
    ]
    if report["slowdowns"]:
        lines.append(
            f"nodes became slow {report['slowdowns']} times: on average an iteration took "
            f"{number('mean_factor', digits='.3g')} times as long for {number('mean_slow_s', ' s')}"
        )
    if report["racks"]:
        lines.append(f"{report['racks']} racks")
    for cause, count in report["causes"].items():
        lines.append(f"{count} losses: {cause}")
    for line in lines:
        console.print(line, soft_wrap=True)

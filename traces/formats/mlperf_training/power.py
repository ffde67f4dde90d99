"""Energy of a run from the readings of its nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats.mlperf_training.logs import Event, LoggedRun, is_number, read_events
from wattkeeper.traces.formats.mlperf_training.tree import Tree
from wattkeeper.traces.readers.json_values import quote

KEYS: Final = frozenset({"power_reading", "interconnect_power_est", "conversion_eff"})
LEAST_COVERAGE: Final = 0.95
"""Share of a run that readings have to cover for its energy to be known."""
LONGEST_HOLD_S: Final = 60.0
"""A reading that is held for longer covers nothing beyond."""
MOST_W: Final = 1e9


class RunPower(NamedTuple):
    """Energy of the nodes of a run.

    Attributes:
        energy_j: Of all nodes at the plug, J.
        coverage: Share of the run that the readings of the node with fewest cover.
        switches_w: Estimated power of its switches, W; None: not stated.
        efficiency: By which readings in DC were divided; None: they are in AC.
    """

    energy_j: float
    coverage: float
    switches_w: float | None
    efficiency: float | None


def measure_power(
    tree: Tree, files: Sequence[str], run: LoggedRun, nodes: int
) -> tuple[RunPower | None, str]:
    """The energy of a run; None, and the reason, if its readings do not tell it.

    Raises:
        TraceError: If a file is wrong; the message names file and line.
    """
    energies, covered, switches = [], [], []
    efficiency = None
    for name in files:
        where = tree.where(name)
        events = read_events(tree.lines(name), KEYS, where).events
        if re.search(r"/sw[^/]*$", name):
            switches += [_watts(e, where) for e in events if e.key == "interconnect_power_est"][:1]
            continue
        own = _efficiency([event for event in events if event.key == "conversion_eff"], where)
        efficiency = own or efficiency
        readings = [
            (event.time_ms, _watts(event, where))
            for event in events
            if event.key == "power_reading"
        ]
        energy_j, share = integrate(sorted(readings), run)
        energies.append(energy_j / (own or 1.0))
        covered.append(share)
    if not energies:
        return None, "no power file"
    if len(energies) != nodes:
        return None, "power files of some of the nodes are missing"
    if min(covered) < LEAST_COVERAGE:
        return None, f"readings cover less than {100 * LEAST_COVERAGE:g} % of the run"
    if not math.fsum(energies):
        return None, "all readings are 0"
    switches_w = math.fsum(switches) if switches else None
    return RunPower(math.fsum(energies), min(covered), switches_w, efficiency), ""


def _watts(event: Event, where: str) -> float:
    value = event.value
    if not is_number(value) or not 0 <= value <= MOST_W:
        text = f"{event.key} is {quote(value)}, must be a power in W from 0 to {MOST_W:g}"
        raise TraceError(text, f"{where}, line {event.line}")
    return float(value)


def _efficiency(events: Sequence[Event], where: str) -> float | None:
    """By which readings in DC are divided to have power at the plug; None if they are in AC.

    Submitters may state the efficiency beside readings in AC, which are at the plug already.
    """
    for event in events:
        value, place = event.value, f"{where}, line {event.line}"
        if not is_number(value) or not 0 < value <= 1:
            raise TraceError(f"conversion_eff is {quote(value)}, must be in (0, 1]", place)
        kind = event.metadata.get("measurement_type")
        if kind == "DC":
            return float(value)
        if kind != "AC":
            text = f"measurement_type of conversion_eff is {quote(kind)}, must be AC or DC"
            raise TraceError(text, place)
    return None


def integrate(readings: Sequence[tuple[float, float]], run: LoggedRun) -> tuple[float, float]:
    """Energy in J, each reading held until the next, and the share of the run that they cover."""
    energy_j, covered_s = [], []
    for (time_ms, power_w), (next_ms, _) in pairwise(readings):
        held_s = (min(next_ms, run.stop_ms) - max(time_ms, run.start_ms)) / 1000
        if held_s > 0:
            energy_j.append(power_w * held_s)
            covered_s.append(held_s if next_ms - time_ms <= 1000 * LONGEST_HOLD_S else 0.0)
    return math.fsum(energy_j), math.fsum(covered_s) / run.time_s

"""What the nodes of elastic jobs cost over time."""

from __future__ import annotations

from collections.abc import Sequence

from wattkeeper.policies.errors import InputError, ScenarioError
from wattkeeper.scenarios.inputs.clusters import UsedCluster
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.inputs.signals import state_signal
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.yaml_document import locate_errors
from wattkeeper.sim.cluster_results.node_use import NodePrices
from wattkeeper.sim.kernel.signals import SignalSeries


def check_currencies(loaded: LoadedScenario, clusters: Sequence[UsedCluster]) -> None:
    """Refuse rents in several currencies.

    Raises:
        ScenarioError: The message names the place in the scenario.
    """
    currencies = {used.spec.rent.currency: used for used in clusters if used.spec.rent is not None}
    if len(currencies) > 1:
        used = list(currencies.values())[-1]
        raise ScenarioError(
            f"{used.label}rent: variants are compared in one currency, found "
            f"{' and '.join(currencies)}",
            used.where(loaded.document, "rent"),
        )


def with_prices(loaded: LoadedScenario, inputs: ScenarioInputs) -> ScenarioInputs:
    """The inputs with the prices of nodes of each variant that states them, once signals are read.

    Raises:
        InputError: If a signal has another unit, a negative value, or no values beforehand.
    """
    runs = dict(inputs.runs)
    for name, run in inputs.runs.items():
        rent = run.cluster.rent
        if rent is not None:
            with locate_errors(loaded.document, "cluster", "rent"):
                on_demand = _read_price("on_demand", rent.on_demand, run, rent.currency)
                node_hour = _read_price("node_hour", rent.node_hour, run, rent.currency)
            assert node_hour is not None  # the section states it
            runs[name] = run._replace(prices=NodePrices(node_hour, on_demand))
    return inputs._replace(runs=runs)


def _read_price(
    key: str, price: float | str | None, run: RunInputs, currency: str
) -> SignalSeries | None:
    """A price that is stated, or follows a signal; None if there is none."""
    if price is None:
        return None
    allowed = f"{currency}/h"
    if not isinstance(price, str):
        return state_signal(key, price, allowed)
    series, named = run.signals[price].series, f"rent.{key}: the signal {price!r}"
    if series is None:
        raise InputError(f"{named} has values that arrive in the run; state a series")
    if series.unit not in ("", allowed):
        raise InputError(f"{named} is in {series.unit}; allowed: {allowed}")
    least = float(series.value.min())
    if least < 0:
        raise InputError(f"{named} falls to {least:g} {allowed}; must be at least 0")
    return series

"""What the nodes of elastic jobs cost over time."""

from __future__ import annotations

from collections.abc import Sequence

from wattkeeper.policies.errors import InputError, ScenarioError
from wattkeeper.scenarios.inputs.clusters import UsedCluster
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.inputs.signals import state_signal
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.sections.elastic import ElasticWorkload
from wattkeeper.scenarios.spec.yaml_document import YamlDocument, locate_errors
from wattkeeper.sim.cluster_results.node_use import NodePrices
from wattkeeper.sim.kernel.signals import SignalSeries


def check_rents(loaded: LoadedScenario, clusters: Sequence[UsedCluster]) -> None:
    """Refuse a rent that nobody pays, and rents in several currencies.

    Raises:
        ScenarioError: The message names the place in the scenario.
    """
    scenario, document = loaded
    rented = [used for used in clusters if used.spec.rent is not None]
    if rented and not isinstance(scenario.workload, ElasticWorkload):
        raise ScenarioError(
            f"{rented[0].label}rent has no effect: only nodes of elastic jobs are paid for "
            "(workload.kind: elastic)",
            rented[0].where(document, "rent"),
        )
    currencies = {used.spec.rent.currency: used for used in rented if used.spec.rent is not None}
    if len(currencies) > 1:
        used = list(currencies.values())[-1]
        raise ScenarioError(
            f"{used.label}rent: variants are compared in one currency, found "
            f"{' and '.join(currencies)}",
            used.where(document, "rent"),
        )


def read_prices(run: RunInputs, document: YamlDocument) -> NodePrices | None:
    """The prices of nodes of a variant; None if it states none.

    Raises:
        InputError: If a signal has another unit, a negative value, or no values beforehand.
    """
    rent = run.cluster.rent
    if rent is None:
        return None

    def read(key: str, price: float | str) -> SignalSeries:
        if not isinstance(price, str):
            return state_signal(key, price, f"{rent.currency}/h")
        series = run.signals[price].series
        with locate_errors(document, "cluster", "rent"):
            return _check_price(f"rent.{key}: the signal {price!r}", series, rent.currency)

    on_demand = None if rent.on_demand is None else read("on_demand", rent.on_demand)
    return NodePrices(read("node_hour", rent.node_hour), on_demand)


def _check_price(named: str, series: SignalSeries | None, currency: str) -> SignalSeries:
    """Refuse a signal that is no price of nodes."""
    if series is None:
        raise InputError(f"{named} has values that arrive in the run; state a series")
    allowed = f"{currency}/h"
    if series.unit not in ("", allowed):
        raise InputError(f"{named} is in {series.unit}; allowed: {allowed}")
    least = float(series.value.min())
    if least < 0:
        raise InputError(f"{named} falls to {least:g} {allowed}; must be at least 0")
    return series


def with_prices(loaded: LoadedScenario, inputs: ScenarioInputs) -> ScenarioInputs:
    """The inputs with the prices of nodes of each variant, once signals are read."""
    runs = {
        name: run._replace(prices=read_prices(run, loaded.document))
        for name, run in inputs.runs.items()
    }
    return inputs._replace(runs=runs)

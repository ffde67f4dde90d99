"""Published replays of elastic training on a trace, as rows by system and model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any, Final

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.sim.published_replays.bamboo import replay_bamboo
from wattkeeper.sim.published_replays.bamboo_alone import (
    BAMBOO_PROFILES,
    BambooProfile,
    on_demand,
    replay_bamboo_alone,
)
from wattkeeper.sim.published_replays.inputs import (
    OUT_OF_MEMORY,
    RateTable,
    SpotChange,
    spot_changes,
)
from wattkeeper.sim.published_replays.oobleck import replay_oobleck
from wattkeeper.sim.published_replays.published_models import PUBLISHED_MODELS, PublishedModel
from wattkeeper.sim.published_replays.removal_sweep import (
    RandomNodes,
    RemovalRun,
    replay_random_nodes,
)
from wattkeeper.sim.published_replays.result import ReplayResult
from wattkeeper.sim.published_replays.varuna import replay_varuna
from wattkeeper.traces.library import store
from wattkeeper.traces.node_events import add_repairs, node_events
from wattkeeper.traces.node_rates import NodeRates

SYSTEMS: Final = ("oobleck", "varuna", "varuna-nockpt", "bamboo")
"""Systems of Oobleck's artifact; `varuna-nockpt` is Varuna with free checkpoints."""


def choose(what: str, chosen: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """The chosen names, in their order; all that are known if none is chosen.

    Raises:
        InputError: If one is not known.
    """
    for name in chosen:
        if name not in known:
            meant = did_you_mean(name, known)
            raise InputError(f"no {what} {name!r}{meant}; there is {', '.join(known)}")
    return tuple(dict.fromkeys(chosen)) or tuple(known)


def counts(result: ReplayResult) -> dict[str, Any]:
    """What a replay counted, by name; without spans."""
    names = (name for name in ReplayResult.__slots__ if name != "spans")
    return {name: getattr(result, name) for name in names}


def read_changes(trace: str) -> tuple[SpotChange, ...]:
    """The nodes that come and are lost in a trace, by name or path.

    Raises:
        InputError: If there is no such trace, it holds something else, or nodes become slow in it.
    """
    found = store.find(trace)
    if found.kind != "node-events":
        raise InputError(f"trace {found.name!r} holds {found.kind}; node-events are needed")
    return spot_changes(list(add_repairs(node_events(found.tables["node-events"]))))


def replay_trace(
    changes: Sequence[SpotChange],
    rates: NodeRates,
    systems: Sequence[str],
    models: Sequence[str],
    *,
    recorded: bool = False,
) -> Iterator[dict[str, Any]]:
    """Replay each system with each model, as JSON values.

    `fits_memory` says whether the system has the memory for the model; else its rate is 0.

    Args:
        changes: Nodes that come and are lost.
        rates: Rates by system, model and number of nodes.
        systems: Of `SYSTEMS`.
        models: Of `PUBLISHED_MODELS`.
        recorded: Whether the trace is a recorded one, where Varuna loses no work of small models.

    Raises:
        InputError: If rates are missing, or the changes cannot follow each other.
    """
    for model in models:
        for system in systems:
            known = PUBLISHED_MODELS[model]
            fits = system != "bamboo" or known.fits_bamboo
            table = RateTable(_rates_of(rates, system, known)) if fits else OUT_OF_MEMORY
            result = _replay(changes, table, system, known, recorded)
            yield {"system": system, "model": model, "fits_memory": fits, **counts(result)}


def _rates_of(rates: NodeRates, system: str, model: PublishedModel) -> dict[int, float]:
    return dict(rates.of(system.removesuffix("-nockpt"), model.rates))


def _replay(
    changes: Sequence[SpotChange],
    rates: RateTable,
    system: str,
    model: PublishedModel,
    recorded: bool,
) -> ReplayResult:
    if system == "oobleck":
        return replay_oobleck(changes, rates, model.oobleck)
    if system == "bamboo":
        return replay_bamboo(changes, rates, model.bamboo)
    return replay_varuna(
        changes,
        rates,
        model.varuna,
        free_checkpoints=system == "varuna-nockpt",
        loses_work=not (recorded and model.spared_on_recorded),
    )


def replay_alone(changes: Sequence[SpotChange], model: str) -> dict[str, Any]:
    """Bamboo's own replay of a model, as JSON values, with the same training on demand.

    Raises:
        InputError: As `replay_bamboo_alone`.
    """
    profile = BAMBOO_PROFILES[model]
    result, spot = replay_bamboo_alone(changes, profile)
    return {"model": model, **counts(result), **spot._asdict(), **_on_demand(profile)}


def replay_drawn(model: str, wanted: int, chance: float, steps: int, seeds: int) -> dict[str, Any]:
    """Bamboo's own replay on random nodes, mean over the seeds from 1 on, as JSON values.

    Raises:
        InputError: As `replay_random_nodes`.
    """
    profile = BAMBOO_PROFILES[model]
    runs = [
        replay_random_nodes(profile, RandomNodes(wanted, chance, seed), steps)
        for seed in range(1, seeds + 1)
    ]
    rows = [_drawn(run) for run in runs]
    means = {name: mean(row[name] for row in rows) for name in rows[0]}
    return {"model": model, "loss_chance": chance, **means, **_on_demand(profile)}


def _drawn(run: RemovalRun) -> dict[str, float]:
    replay = run.replay
    return {
        "preemptions": replay.preemptions,
        "fatal": replay.fatal,
        "interruption_h": run.interruption_h,
        "lifetime_h": run.lifetime_h,
        "avg_instances": replay.avg_instances,
        **run.economy._asdict(),
    }


def _on_demand(profile: BambooProfile) -> dict[str, float]:
    return {f"on_demand_{name}": value for name, value in on_demand(profile)._asdict().items()}

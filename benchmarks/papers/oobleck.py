"""Oobleck, Varuna and Bamboo on a trace of spot nodes, as Oobleck's artifact replays them.

Run it as `python -m benchmarks.papers.oobleck TRACE --rates FILE`; README.md has the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.papers.commands import PaperCommand, choose, counts, read_changes
from benchmarks.papers.replays.bamboo import replay_bamboo
from benchmarks.papers.replays.inputs import OUT_OF_MEMORY, RateTable, SpotChange
from benchmarks.papers.replays.models import PUBLISHED_MODELS, PublishedModel
from benchmarks.papers.replays.oobleck import replay_oobleck
from benchmarks.papers.replays.result import ReplayResult
from benchmarks.papers.replays.varuna import replay_varuna
from benchmarks.papers.tables import print_replays
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.options import FILE, json_option
from wattkeeper.traces.node_rates import NodeRates, read_node_rates

SYSTEMS: Final = ("oobleck", "varuna", "varuna-nockpt", "bamboo")
"""Systems of the artifact; `varuna-nockpt` is Varuna with free checkpoints."""


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
    for name in models:
        model = PUBLISHED_MODELS[name]
        for system in systems:
            fits = system != "bamboo" or model.fits_bamboo
            table = RateTable(_rates_of(rates, system, model)) if fits else OUT_OF_MEMORY
            result = _replay(changes, table, system, model, recorded)
            yield {"system": system, "model": name, "fits_memory": fits, **counts(result)}


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


@click.command("python -m benchmarks.papers.oobleck", cls=PaperCommand)
@click.argument("trace")
@click.option(
    "--rates",
    "path",
    type=FILE,
    required=True,
    help="CSV file of rates: system, model, num_nodes, samples_per_s.",
)
@click.option(
    "--system",
    "systems",
    multiple=True,
    metavar="NAME",
    help="oobleck, varuna, varuna-nockpt or bamboo, may be repeated [all].",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="A model of the artifact, may be repeated [all].",
)
@click.option(
    "--recorded", is_flag=True, help="TRACE is recorded: Varuna then loses no work of small models."
)
@json_option
def main(
    trace: str,
    path: Path,
    systems: tuple[str, ...],
    models: tuple[str, ...],
    recorded: bool,
    as_json: bool,
) -> None:
    """Replay Oobleck, Varuna and Bamboo on TRACE as Oobleck's artifact does (SOSP '23).

    TRACE is a trace of node events, by name or path. The constants of the models are the
    artifact's.
    """
    chosen = choose("system", systems, SYSTEMS)
    of_models = choose("model", models, list(PUBLISHED_MODELS))
    if recorded and not any(system.startswith("varuna") for system in chosen):
        raise click.UsageError("--recorded has no effect without varuna")
    rates = read_node_rates(path)
    rows = list(replay_trace(read_changes(trace), rates, chosen, of_models, recorded=recorded))
    if as_json:
        terminal.write(json.dumps(rows, indent=2))
    else:
        print_replays(terminal.console(), f"Published replays on {trace}", rows)


if __name__ == "__main__":
    main()

"""Training rates of elastic jobs by number of nodes, as measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from wattkeeper.policies.errors import InputError
from wattkeeper.traces.readers.csvfile import read_csv
from wattkeeper.traces.schema import field, table_schema

RATES: Final = table_schema(
    "rates by number of nodes",
    [],
    [
        field(
            "system",
            pa.string(),
            "",
            "training system that was measured",
            "not empty",
            optional=True,
        ),
        field("model", pa.string(), "", "what it trained", "not empty"),
        field("num_nodes", pa.int32(), "", "number of nodes", "> 0"),
        field("samples_per_s", pa.float64(), "1/s", "samples a second; 0: it cannot train", ">= 0"),
    ],
)


class NodeRates(NamedTuple):
    """A file of rates.

    Attributes:
        name: Of the file.
        rates: Samples a second by number of nodes, by system (empty: not named) and model.
        sha256: Of the file, hex.
        table: Its rows, with the columns of `RATES`.
    """

    name: str
    rates: Mapping[tuple[str, str], Mapping[int, float]]
    sha256: str
    table: pa.Table

    def of(self, system: str, model: str) -> Mapping[int, float]:
        """The rates of a system and a model; those of any system where the file names none.

        Raises:
            InputError: If there are none; it names those that there are.
        """
        systems = sorted({known for known, _ in self.rates})
        if systems == [""]:
            system = ""
        found = self.rates.get((system, model))
        if found is not None:
            return found
        models = ", ".join(sorted({known for _, known in self.rates}))
        if not system:
            raise InputError(f"{self.name} has no rates of {model!r}; there is {models}")
        raise InputError(
            f"{self.name} has no rates of {model!r} by {system}; there are models {models}, by "
            f"systems {', '.join(systems)}"
        )


def read_node_rates(path: Path) -> NodeRates:
    """Read a CSV file of rates, with the columns of `RATES`.

    Raises:
        TraceError: With file, row and column, if a row is broken.
        InputError: If a row stands there twice, or only some of them name a system.
    """
    content = read_csv(path, RATES)
    systems, models, nodes, rates = (content.table[name].to_pylist() for name in RATES.names)
    named = sum(system is not None for system in systems)
    if 0 < named < len(systems):
        row = systems.index(None) + 1
        raise InputError(
            f"row {row} names no system, others do; allowed is one in each row, or in none", path
        )
    found: dict[tuple[str, str], dict[int, float]] = {}
    for system, model, number, rate in zip(systems, models, nodes, rates, strict=True):
        known = found.setdefault((system or "", model), {})
        if number in known:
            raise InputError(f"{model} on {number} nodes stands there twice", path)
        known[number] = rate
    return NodeRates(path.name, found, content.sha256, content.table)

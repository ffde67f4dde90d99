"""The result of a unit of a sweep as bytes: JSON, and tables as streams of Arrow; nothing is run.

The bytes begin with the length of the JSON. Tables follow in the order of its list.
"""

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.run.unit import UnitResult
from wattkeeper.sim.cluster_results.accounting import Account, EnergyParts, Sleeps, Window
from wattkeeper.sim.cluster_results.tables import ClusterResult

_LENGTH: Final = 8


def encode_unit(unit: UnitResult) -> bytes:
    """The bytes of a unit that ended well, whose tables are in memory."""
    result = unit.result
    assert isinstance(result, ClusterResult)
    head = json.dumps(
        {
            "variant": result.variant,
            "seed": result.seed,
            "tables": list(result.tables),
            "metrics": result.metrics,
            "by": result.by,
            "account": _encode_account(result.account),
            "events": result.events,
            "digest": result.digest,
            "wall_s": unit.wall_s,
        }
    ).encode()
    sink = pa.BufferOutputStream()
    sink.write(len(head).to_bytes(_LENGTH, "little"))
    sink.write(head)
    for table in result.tables.values():
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_unit(data: memoryview) -> UnitResult:
    """The unit of `encode_unit`."""
    begin = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    head: Json = json.loads(bytes(data[_LENGTH:begin]))
    source = pa.BufferReader(pa.py_buffer(data[begin:]))
    tables = {name: pa.ipc.open_stream(source).read_all() for name in head["tables"]}
    result = ClusterResult(
        variant=head["variant"],
        seed=head["seed"],
        tables=tables,
        metrics=head["metrics"],
        by=head["by"],
        account=_decode_account(head["account"]),
        events=head["events"],
        digest=head["digest"],
    )
    return UnitResult(result, head["wall_s"])


def _encode_account(account: Account) -> Json:
    sleeps = [column.tolist() for column in account.sleeps]
    return account._replace(sleeps=sleeps)._asdict()  # type: ignore[arg-type]


def _decode_account(values: dict[str, Any]) -> Account:
    charges = {name: EnergyParts(*parts) for name, parts in values["charges"].items()}
    sleeps = Sleeps(*(np.array(column, np.float64) for column in values["sleeps"]))
    return Account(
        **{
            **values,
            "window": Window(*values["window"]),
            "energy": EnergyParts(*values["energy"]),
            "charges": charges,
            "sleeps": sleeps,
        }
    )

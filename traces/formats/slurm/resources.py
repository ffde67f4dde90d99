"""GPUs in Slurm's lists of resources.

``AllocTRES`` and ``ReqTRES`` count all nodes (``gres/gpu=4,gres/gpu:a100=4``), ``AllocGRES`` and
``ReqGRES`` each node (``gpu:a100:4(S:0-1)``). A type such as ``a100_3g.20gb`` is a slice of a GPU.
``gres/mps`` counts hundredths of one GPU, as it is configured by default; how many ``gres/shard``
a GPU has is not recorded. Sources: sacct(1), gres.conf(5).
"""

import math
import re
from collections import Counter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.traces.readers.columns import (
    WHOLE_BELOW,
    Wrong,
    add_coded_faults,
    add_fault,
    parse_numbers,
    strip_cells,
)
from wattkeeper.traces.readers.csvfile import quote
from wattkeeper.traces.readers.gpu_slices import MIXED, SHARED, to_milli

GPU_COLUMNS: Final = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
TRES: Final = re.compile(r"(gres/(gpu|mps|shard)(?::([^=]+))?)(?:=(.*))?")
GRES: Final = re.compile(
    r"((?:gres[:/])?(gpu|mps|shard)(?::([A-Za-z][^:=]*|[^:=]+(?=[:=])))?)(?:[:=](.*))?"
)
SLICE: Final = re.compile(
    r"(?i)(?:(.*?)[-_. ]?)?(?:(?<![a-z])mig[-_. ]?)?"
    r"(?<![0-9a-z])([1-7])g[._]([0-9]+)gb(?![0-9a-z]).*"
)
"""A profile of slices behind the type of the GPU, if that is named."""
PLACES: Final = re.compile(r"\([^()]*\)")
COUNT: Final = re.compile(r"[0-9]{1,15}")
WHOLE: Final = 1000
MPS_OF_A_GPU: Final = 100


class GpuRequest(NamedTuple):
    """What a list of resources says of GPUs.

    Attributes:
        gpus: GPUs, or parts of GPUs; 0 where there are none.
        gpu_milli: Thousandths of each.
        gpu_type: Types, with ``|`` between; None: none is named.
        dropped: Why the job is left out though it has GPUs; empty: it is not.
        fault: What is malformed; empty: nothing is.
        shares: Whether `gpu_milli` rests on the default of ``gres/mps``.
    """

    gpus: float = 0.0
    gpu_milli: int = WHOLE
    gpu_type: str | None = None
    dropped: str = ""
    fault: str = ""
    shares: bool = False


class Gpus(NamedTuple):
    """GPUs of the rows of a batch, as in `GpuRequest`.

    `granted`: whether any resources were allocated; all rows, if no column tells.
    """

    total: Floats
    milli: Floats
    kinds: pa.Array
    granted: Bools
    drops: dict[str, Bools]
    shares: Bools


def parse_request(text: str, column: str) -> GpuRequest:
    """Read a list of resources, of all nodes (TRES) or of each (GRES)."""
    tres = column.endswith("TRES")
    plain, typed = Counter[str](), Counter[int]()
    kinds = set[str]()
    for item in PLACES.sub("", text).split(","):
        match = (TRES if tres else GRES).fullmatch(item)
        if match is None:
            continue
        label, resource, kind, number = match.groups()
        number = "1" if number is None and not tres else number or ""
        if not COUNT.fullmatch(number):
            must = "must be a whole number > 0, or 0 for none"
            return GpuRequest(math.nan, fault=f"{label} is {quote(number)}, {must}")
        if resource != "gpu" or not kind:
            plain[resource] += int(number)
            continue
        part = SLICE.fullmatch(kind)
        typed[to_milli(int(part[2]), int(part[3]), part[1]) if part else WHOLE] += int(number)
        kinds.add((part[1] or "") if part else kind)
    types = "|".join(sorted(kinds - {""})) or None
    if others := plain["gpu"] - sum(typed.values()):
        typed[WHOLE] += max(others, 0)
    counts = {milli: count for milli, count in typed.items() if count}
    if len(counts) > 1:
        return GpuRequest(sum(counts.values()), gpu_type=types, dropped=MIXED)
    if counts:
        ((milli, count),) = counts.items()
        return GpuRequest(count, milli, types)
    if mps := plain["mps"]:
        whole, rest = divmod(mps, MPS_OF_A_GPU)
        if whole and rest:
            return GpuRequest(whole + 1, gpu_type=types, dropped=MIXED)
        return GpuRequest(whole or 1, WHOLE if whole else 10 * rest, types, shares=True)
    return GpuRequest(plain["shard"], gpu_type=types, dropped=SHARED if plain["shard"] else "")


def parse_gpus(table: pa.Table, wrong: Wrong) -> Gpus:
    """GPUs of each row by the first of `GPU_COLUMNS` that has any."""
    rows = table.num_rows
    nodes = parse_numbers(table, "NNodes", wrong, whole=True)
    nodes = np.where(nodes > 0, nodes, 1)
    gpus, milli = np.zeros(rows), np.full(rows, float(WHOLE))
    kinds = pa.nulls(rows, pa.string())
    granted, shares, untyped = (np.zeros(rows, dtype=bool) for _ in range(3))
    drops = {reason: np.zeros(rows, dtype=bool) for reason in (MIXED, SHARED)}
    told = False
    for name in GPU_COLUMNS:
        if name not in table.column_names:
            continue
        coded = strip_cells(table, name).dictionary_encode()
        codes, texts = np.asarray(coded.indices), coded.dictionary.to_pylist()
        requests = [parse_request(text, name) for text in texts] or [GpuRequest()]
        faults = {n: f"{name}: {each.fault}" for n, each in enumerate(requests) if each.fault}
        add_coded_faults(wrong, codes, faults)

        def spread(values: list[Any], codes: Any = codes) -> Any:
            return np.array(values)[codes] if len(codes) else np.zeros(0)

        count = spread([each.gpus for each in requests]).astype(float)
        new = (gpus == 0) & (count != 0)
        if name.endswith("GRES"):
            count = count * nodes
        part = spread([each.gpu_milli for each in requests]).astype(float)
        sliced = untyped & (count == gpus) & (part < WHOLE)
        gpus = np.where(new, count, gpus)
        milli = np.where(new | sliced, part, milli)
        untyped |= new & spread([each.gpu_type is None for each in requests]).astype(bool)
        untyped &= milli == WHOLE
        shares |= new & spread([each.shares for each in requests]).astype(bool)
        for reason, mask in drops.items():
            mask |= new & spread([each.dropped == reason for each in requests]).astype(bool)
        types = pa.array([each.gpu_type for each in requests], pa.string())
        kinds = pc.coalesce(kinds, types.take(coded.indices))
        if name.startswith("Alloc"):
            told = True
            granted |= spread([bool(text) for text in texts] or [False]).astype(bool)
    granted |= not told
    for row in np.flatnonzero(gpus >= WHOLE_BELOW).tolist():
        add_fault(wrong, row, f"the job has {gpus[row]:.15g} GPUs, must be fewer than 2147483648")
    return Gpus(np.nan_to_num(gpus), milli, kinds, granted, drops, shares)

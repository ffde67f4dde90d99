"""What is wrong with rows of measurements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from wattkeeper.traces.files.names import explain_label
from wattkeeper.traces.formats.profiles.rows import CHOICES, NAMES, PER_WORKLOAD, Row, setting_of
from wattkeeper.traces.measurements import Setting
from wattkeeper.traces.trace import explain_boundary

LEAST: Final = 1e-9
"""Least time (s), energy (J) and power (W): quotients of smaller ones are none."""


def find_faults(rows: Sequence[Row]) -> Iterator[tuple[int, str]]:
    """What is wrong with each row, by its index."""
    described: dict[str, tuple[int, Row]] = {}
    limited: dict[tuple[str, str, int], tuple[int, bool]] = {}
    free = {
        setting_of(row)._replace(power_limit_w=None) for row in rows if row["clock_mhz"] is None
    }
    seeds: dict[tuple[Setting, str], int] = {}
    for number, row in enumerate(rows):
        yield from ((number, text) for text in _row_faults(row))
        first, other = described.setdefault(row["workload"], (number, row))
        for name in (*PER_WORKLOAD, *NAMES):
            if row[name] != other[name]:
                text = f"{name} is {row[name]!r}, and {other[name]!r} in row {first + 1}"
                yield number, f"{text}: a workload has one"
        setting = setting_of(row)
        if row["clock_mhz"] is not None:
            if setting._replace(clock_mhz=None) not in free:
                yield (
                    number,
                    "clock_mhz: no row has the same batch size and GPUs and leaves it empty",
                )
        else:
            kind = (setting.workload, setting.gpu_type, setting.gpus)
            has = row["power_limit_w"] is not None
            before, had = limited.setdefault(kind, (number, has))
            if has != had:
                state = "stated" if has else "empty"
                yield number, f"power_limit_w is {state}, other than in row {before + 1}"
        if row["seed"] is not None:
            before = seeds.setdefault((setting, row["seed"]), number)
            if before != number:
                yield number, f"repeats row {before + 1}: seed {row['seed']!r}; must be unique"
    yield from _default_faults(rows)


def _row_faults(row: Row) -> Iterator[str]:
    for name, allowed in CHOICES.items():
        if row[name] is not None and row[name] not in allowed:
            yield f"{name} is {row[name]!r}, must be {' or '.join(allowed)}"
    if problem := explain_label(row["workload"], "workload"):
        yield problem
    for name in ("time_s", "energy_j", "power_w"):
        if row[name] is not None and row[name] < LEAST:
            yield f"{name} is {row[name]!r}, must be at least {LEAST:g}"
    if row["energy_j"] is not None and row["power_w"] is not None:
        yield "energy_j and power_w are both stated; state one"
    measured = row["energy_j"] is not None or row["power_w"] is not None
    if measured and row["energy_of"] is None:
        yield "energy_of is absent, must say what the energy is of: gpu, node or facility"
    if not measured and row["energy_of"] is not None:
        yield "energy_of is stated, and neither energy_j nor power_w is"
    if problem := explain_boundary(row["energy_of"], row["nodes"], row["gpus"]):
        yield problem
    if (row["per"] == "step") != (row["steps_per_epoch"] is not None):
        yield "steps_per_epoch belongs to rows per step, and to no others"
    if (row["epochs"] is None) != (row["reached"] is None):
        yield "epochs and reached belong together: of a run, and whether it reached the target"
    if row["per"] == "run" and row["epochs"] is None:
        yield "epochs is absent, must be the number of epochs of the run"
    if row["seed"] is not None and row["epochs"] is None:
        yield "seed is that of a run, which has epochs"
    if row["clock_mhz"] is not None and row["power_limit_w"] is not None:
        yield "power_limit_w must be empty with clock_mhz: clocks are locked at the highest limit"


def _default_faults(rows: Sequence[Row]) -> Iterator[tuple[int, str]]:
    """Refuse several batch sizes on the same GPUs without a default, and a default without rows."""
    sizes: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for row in rows:
        sizes[row["workload"], row["gpu_type"], row["gpus"]].add(row["batch_size"])
    told: set[str] = set()
    for number, row in enumerate(rows):
        workload, default = row["workload"], row["default_batch_size"]
        own = sizes[workload, row["gpu_type"], row["gpus"]]
        if workload in told:
            continue
        if default is None and len(own) > 1:
            told.add(workload)
            listed = ", ".join(map(str, sorted(own)))
            yield number, f"default_batch_size is absent, must be one of {listed}"
        elif default is not None and not any(
            default in each for (name, *_), each in sizes.items() if name == workload
        ):
            told.add(workload)
            yield number, f"default_batch_size is {default}, which has no row"

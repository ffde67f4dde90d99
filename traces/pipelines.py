"""Profiles of pipeline-parallel jobs: measured time and energy by stage, instruction and clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.policies.pipeline.profile import KINDS, ClockPoint, StageClocks
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.profile import UNLIMITED_W, Curve, Profile
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.readers.csvfile import quote, read_csv
from wattkeeper.traces.schema import field, table_schema
from wattkeeper.traces.trace import Origin

POINTS: Final = table_schema(
    "points of a pipeline",
    ["stage", "instruction", "frequency"],
    [
        field("stage", pa.int32(), "", "stage of the pipeline, from 0", ">= 0"),
        field("instruction", pa.string(), "", "forward or backward", "not empty"),
        field("frequency", pa.int32(), "MHz", "clock of the stage's GPUs", "> 0"),
        field(
            "time", pa.float64(), "s", "time of one instruction, the longest over the GPUs", "> 0"
        ),
        field("energy", pa.float64(), "J", "its energy, summed over the GPUs", "> 0"),
    ],
)

MOST_STAGES: Final = 1024


class PipelinePoints(NamedTuple):
    """The measured points of a pipeline, and where they come from.

    Attributes:
        name: Its name in results.
        table: The points, with the columns of `POINTS`.
        stages: The same by stage.
        origin: Whether they were recorded or made up.
        inputs: SHA-256 (hex) of the file by name.
        parameters: Of the model that made them up.
    """

    name: str
    table: pa.Table
    stages: tuple[StageClocks, ...]
    origin: Origin
    inputs: Mapping[str, str] = {}
    parameters: Mapping[str, Any] = {}


def read_pipeline(path: Path, gpus: int = 1) -> PipelinePoints:
    """Read the points of a pipeline.

    Args:
        path: CSV with the columns of `POINTS`, a row a measured point.
        gpus: GPUs of each stage.

    Raises:
        TraceError: With file, row and column, if a row is broken, or a stage lacks an instruction.
    """
    content = read_csv(path, POINTS)
    stages = stages_of(content.table, path, gpus)
    inputs = {path.name: content.sha256}
    return PipelinePoints(path.name, content.table, stages, "recorded", inputs)


def stages_of(table: pa.Table, path: Path | str, gpus: int) -> tuple[StageClocks, ...]:
    """The points by stage; `path` is named in messages.

    Raises:
        TraceError: See `read_pipeline`.
    """
    rows = zip(*(table[name].to_pylist() for name in POINTS.names), strict=True)
    points: dict[tuple[int, str], list[ClockPoint]] = {}
    problems = []
    for row, (stage, kind, *point) in enumerate(rows, 1):
        if kind not in KINDS:
            what = f"instruction is {quote(kind)}; allowed is {' or '.join(KINDS)}"
            problems.append(Problem(what, f"{path}, row {row}"))
        elif stage >= MOST_STAGES:
            what = f"stage is {stage}; allowed is 0 to {MOST_STAGES - 1}"
            problems.append(Problem(what, f"{path}, row {row}"))
        points.setdefault((stage, kind), []).append(ClockPoint(*point))
    if problems:
        raise TraceError(problems[:MOST_FAULTS])
    stages = 1 + max(stage for stage, _ in points)
    for stage in range(stages):
        for kind in KINDS:
            if (stage, kind) not in points:
                what = f"has no row of stage {stage}, {kind}; each stage from 0 to {stages - 1}"
                raise TraceError(f"{what} needs both instructions", path)
    return tuple(
        StageClocks(tuple(points[stage, "forward"]), tuple(points[stage, "backward"]), gpus)
        for stage in range(stages)
    )


def replayed_profile(
    workload: str, gpu_type: str, gpus: int, task: PipelineTask, iterations: int
) -> Profile:
    """The profile that a pipeline-parallel job is replayed from.

    An epoch is an iteration, and the batch size its number of microbatches. There is no power
    limit; without a plan, an iteration is that at the highest clocks.
    """
    fastest = task.fastest
    batch_size = task.schedule.microbatches
    power_w = fastest.energy_j / fastest.time_s
    curve = Curve(batch_size, (UNLIMITED_W,), (fastest.time_s,), (power_w,), (float(iterations),))
    return Profile(
        workload,
        gpu_type,
        gpus,
        0.0,
        iterations,
        batch_size,
        UNLIMITED_W,
        {batch_size: curve},
        pipeline=task,
    )

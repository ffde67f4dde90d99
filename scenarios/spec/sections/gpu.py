"""The section of scenario files, and of files of nodes, on a GPU that is of no known type."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from wattkeeper.scenarios.spec.sections.section import Section
from wattkeeper.scenarios.spec.sections.values import MAX_POWER_W

if TYPE_CHECKING:
    from wattkeeper.traces.gpus.model import GpuModel
    from wattkeeper.traces.gpus.sweep import LimitPoint

PositiveWatts = Annotated[float, Field(gt=0, le=MAX_POWER_W)]
MOST_ROWS = 10_000


class SweepRow(Section):
    """What a load did on one GPU under a power limit."""

    limit_w: PositiveWatts
    """The limit, W."""
    power_w: PositiveWatts
    """Mean power of the GPU, W."""
    speed: Annotated[float, Field(gt=0, le=1e15)]
    """Work in a time, in any unit."""


class StatedGpu(Section):
    """Facts of a GPU: its limits and kind of memory, or a sweep of its limits."""

    memory: Literal["gddr", "hbm"] | None = None
    """Kind of its memory, by which its base power is modelled."""
    min_limit_w: PositiveWatts | None = None
    """Lowest power limit, W; no policy can limit it if absent."""
    default_limit_w: PositiveWatts | None = None
    """Power limit if nobody sets one, W."""
    max_limit_w: PositiveWatts | None = None
    """Highest power limit, W; `default_limit_w` if absent."""
    sweep: Annotated[tuple[SweepRow, ...], Field(max_length=MOST_ROWS)] | None = None
    """Recorded power and speed under its limits, in place of all other keys: rows, or a CSV file
    with these columns. The highest limit stands for none. Values between recorded limits are
    interpolated; limits outside of them are refused."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.sweep is not None:
            if others := sorted(self.model_fields_set - {"sweep"}):
                raise ValueError(f"{', '.join(others)} beside sweep, whose limits are the recorded")
            from wattkeeper.traces.gpus.sweep import find_fault

            if fault := find_fault(_points(self.sweep)):
                raise ValueError(f"sweep: {fault}")
            return self
        needed = ("memory", "default_limit_w")
        if absent := [key for key in needed if getattr(self, key) is None]:
            raise ValueError(f"{' and '.join(absent)} missing; or state a sweep of its limits")
        ordered = ("min_limit_w", "default_limit_w", "max_limit_w")
        stated = [(key, getattr(self, key)) for key in ordered if getattr(self, key) is not None]
        for (low, low_w), (high, high_w) in pairwise(stated):
            if low_w > high_w:
                raise ValueError(f"{low}, {low_w:g} W, is above {high}, {high_w:g} W")
        return self


NameOrFacts = str | StatedGpu


def _points(rows: tuple[SweepRow, ...]) -> tuple[LimitPoint, ...]:
    from wattkeeper.traces.gpus.sweep import LimitPoint

    return tuple(sorted(LimitPoint(row.limit_w, row.power_w, row.speed) for row in rows))


def find_model(
    stated: NameOrFacts | None, gpu_type: str, idle_w: float | None = None
) -> GpuModel | None:
    """The power model of a GPU type of a cluster; None if none is known.

    Args:
        stated: What the scenario states: facts, or the name of another type; None: nothing.
        gpu_type: The type, as the cluster calls it.
        idle_w: Power of one such GPU while no job holds it, W, where the scenario states it.
    """
    from wattkeeper.traces.gpus import model as models

    if not isinstance(stated, StatedGpu):
        return models.find_gpu_model(stated or gpu_type)
    if stated.sweep is not None:
        return models.model_sweep(gpu_type, idle_w, _points(stated.sweep))
    assert stated.memory is not None
    assert stated.default_limit_w is not None
    return models.build_gpu_model(
        models.GpuFacts(
            gpu_type=gpu_type,
            aliases=(),
            memory=stated.memory,
            idle_w=idle_w,
            min_limit_w=stated.min_limit_w,
            default_limit_w=stated.default_limit_w,
            max_limit_w=stated.max_limit_w or stated.default_limit_w,
            source=models.STATED,
        )
    )


def highest_limit_w(stated: NameOrFacts | None, gpu_type: str) -> float | None:
    """The highest power limit of a GPU of a cluster, W; None if it is not known.

    Arguments as of `find_model`. A sweep says nothing of limits above its own.
    """
    from wattkeeper.traces.gpus import model as models

    if isinstance(stated, StatedGpu):
        return stated.max_limit_w or stated.default_limit_w
    return models.highest_limit_w(stated or gpu_type)

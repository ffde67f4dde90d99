"""What is known of a GPU type, and its `LimitCurve` for each case of boundness.

``gpu_types.json`` holds facts with their sources, and figures that ``benchmarks/fit_gpu_types.py``
fitted to recorded power-limit sweeps.
"""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pydantic import TypeAdapter

from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.traces.gpus.curve import ClockShape, LimitCurve
from wattkeeper.traces.gpus.sweep import LimitPoint, SweepCurve

Boundness = Literal["low", "middle", "high"]
BOUNDNESS: Final[tuple[Boundness, ...]] = ("low", "middle", "high")
"""How far a job may be bound by the clock of its GPU: the least, typically, and entirely."""

Memory = Literal["gddr", "hbm"]
"""Memory of a GPU. The base power of boards with GDDR is the larger part of their limit."""


OTHER_FORMS_W: Final = {"v100": 350.0, "p100": 300.0}
"""Highest power limits of other forms that a bare name may stand for, W: V100 SXM3 and P100 SXM2,
by NVIDIA's data sheets."""


STATED: Final = "stated, not of a known type"
"""Source of the facts of a GPU that a user states."""


class CaseFit(NamedTuple):
    """One case of boundness; see `LimitCurve`.

    Attributes:
        boundness: Share of the time of peak phases that is inverse to the clock.
        peak_share: Power of the peak phases; shares are as in `PooledFit`.
    """

    boundness: float
    peak_share: float


class PooledFit(NamedTuple):
    """Figures of all recorded GPU types together; shares are of the limit if nobody sets one.

    Attributes:
        shape: Clock against power.
        cases: By case of boundness.
        base_share: Base power by kind of memory.
        busy_share: Mean power of trainings without limit.
        busy_range_share: Of the network that draws least, and of the one that draws most.
        range_error: Relative deviation of recorded power and speed from the range of the cases that
            both keep at 95 % of the limits of GPU types that were left out of the fit.
        fitted_from: The recordings.
    """

    shape: ClockShape
    cases: Mapping[Boundness, CaseFit]
    base_share: Mapping[Memory, float]
    busy_share: float
    busy_range_share: tuple[float, float]
    range_error: float
    fitted_from: str


class TypeFit(NamedTuple):
    """Figures of one recorded GPU type; see `GpuModel`."""

    base_w: float
    fitted_from: str
    busy_w: float | None = None
    busy_range_w: tuple[float, float] | None = None


class GpuFacts(NamedTuple):
    """Facts on a GPU type; see `GpuModel`. ``aliases`` are as `normalise_name` returns them."""

    gpu_type: str
    aliases: tuple[str, ...]
    memory: Memory
    idle_w: float | None
    min_limit_w: float | None
    default_limit_w: float
    max_limit_w: float
    source: str
    fit: TypeFit | None = None


class GpuTypes(NamedTuple):
    """``gpu_types.json``."""

    pooled: PooledFit
    types: tuple[GpuFacts, ...]


class GpuModel(NamedTuple):
    """A GPU type: facts, and modelled power of jobs that nobody profiled.

    Attributes:
        gpu_type: Its full name, which says form and memory where they matter.
        idle_w: Power while no job holds it, W; None if not recorded.
        base_w: Power of a held GPU apart from what its clocks draw, W; at least `idle_w`.
        busy_w: Mean power of a job without limit, W.
        busy_range_w: The same of the recorded network that draws least, and most, W.
        min_limit_w: Lowest power limit, W; None if not recorded: then nothing limits it.
        default_limit_w: The limit if nobody sets one, W.
        max_limit_w: Highest power limit, W.
        source: Of idle power and limits, and whether they were measured.
        fitted_from: The recordings from which base and busy power and the curves come.
        sweep: A sweep of limits in place of the modelled curves, by limit; empty: there is none.
    """

    gpu_type: str
    idle_w: float | None
    base_w: float
    busy_w: float
    busy_range_w: tuple[float, float]
    min_limit_w: float | None
    default_limit_w: float
    max_limit_w: float
    source: str
    fitted_from: str
    sweep: tuple[LimitPoint, ...] = ()

    @property
    def limits_w(self) -> tuple[float, ...]:
        """The limits up to the default one in whole watts, ascending: higher ones save nothing.

        Empty if the lowest one is not known.
        """
        if self.min_limit_w is None:
            return ()
        below = range(math.ceil(self.min_limit_w), math.ceil(self.default_limit_w))
        return (*map(float, below), self.default_limit_w)

    def lowest_limit_w(self, most_w: float) -> float | None:
        """The lowest limit whose effect is known on all jobs that draw up to `most_w` without one.

        A sweep says nothing of low limits on jobs that draw more than the load that it is of.
        """
        if self.min_limit_w is None or not self.sweep:
            return self.min_limit_w
        return self.min_limit_w * max(1.0, most_w / self.busy_w)


@functools.cache
def read_gpu_types() -> GpuTypes:
    """The shipped GPU types and fitted figures."""
    path = Path(__file__).with_name("gpu_types.json")
    return TypeAdapter(GpuTypes).validate_json(path.read_bytes())


def normalise_name(name: str) -> str:
    """A name without the maker, product line, separators and case: ``NVIDIA A40`` -> ``a40``."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _PRODUCT_LINES)


_PRODUCT_LINES: Final = frozenset({"nvidia", "tesla", "geforce", "quadro", "amd", "instinct"})


@functools.cache
def _models() -> Mapping[str, GpuModel]:
    """Models by normalised name."""
    types = read_gpu_types()
    return {
        alias: build_gpu_model(facts, types.pooled)
        for facts in types.types
        for alias in (normalise_name(facts.gpu_type), *facts.aliases)
    }


def gpu_models() -> tuple[GpuModel, ...]:
    """All shipped models, each once, in the order of the file."""
    return tuple(dict.fromkeys(_models().values()))


def find_gpu_model(name: str) -> GpuModel | None:
    """The model of a GPU type by a name of NVML, Slurm or a trace; None if the name is not known.

    Only listed names match: ``a100`` is ``A100-SXM4``, as the result says; ``A100-PCIE``, whose
    forms have different limits, is not known.
    """
    return _models().get(normalise_name(name))


def highest_limit_w(name: str) -> float | None:
    """The highest power limit of a GPU with this name, W; None if the name is not known."""
    model = find_gpu_model(name)
    if model is None:
        return None
    return max(model.max_limit_w, OTHER_FORMS_W.get(normalise_name(name), 0.0))


def explain_unknown(name: str) -> str:
    """Why there is no model of a GPU type, with the names that are most alike and all types."""
    types = [model.gpu_type for model in gpu_models()]
    meant = did_you_mean(normalise_name(name), _models()) or did_you_mean(name, types)
    return f"there is no power model of GPU type {name!r}{meant}; known: {', '.join(types)}"


def build_gpu_model(facts: GpuFacts, pooled: PooledFit | None = None) -> GpuModel:
    """The model from facts, with pooled figures where the type has none of its own.

    Args:
        facts: Of a shipped type, or of any other.
        pooled: Other figures than the shipped ones.
    """
    pooled = pooled or read_gpu_types().pooled
    top_w = facts.default_limit_w
    fit = facts.fit or TypeFit(pooled.base_share[facts.memory] * top_w, "")
    base_w = max(round(fit.base_w, 1), facts.idle_w or 0.0)
    least_w, most_w = fit.busy_range_w or (share * top_w for share in pooled.busy_range_share)
    return GpuModel(
        gpu_type=facts.gpu_type,
        idle_w=facts.idle_w,
        base_w=base_w,
        busy_w=max(base_w, round(fit.busy_w or pooled.busy_share * top_w, 1)),
        busy_range_w=(max(base_w, round(least_w, 1)), max(base_w, round(most_w, 1))),
        min_limit_w=facts.min_limit_w,
        default_limit_w=top_w,
        max_limit_w=facts.max_limit_w,
        source=facts.source,
        fitted_from=fit.fitted_from or f"none of this type: pooled from {pooled.fitted_from}",
    )


def model_sweep(gpu_type: str, idle_w: float | None, points: Sequence[LimitPoint]) -> GpuModel:
    """The model of a GPU from a sweep of its power limits, ascending; see `SweepCurve`."""
    lowest, highest = points[0], points[-1]
    return GpuModel(
        gpu_type=gpu_type,
        idle_w=idle_w,
        base_w=idle_w or 0.0,
        busy_w=highest.power_w,
        busy_range_w=(highest.power_w, highest.power_w),
        min_limit_w=lowest.limit_w,
        default_limit_w=highest.limit_w,
        max_limit_w=highest.limit_w,
        source=STATED,
        fitted_from=f"a sweep of {len(points)} limits from {lowest.limit_w:g} to "
        f"{highest.limit_w:g} W that the scenario states",
        sweep=tuple(points),
    )


class LimitRange(NamedTuple):
    """Lowest and highest value in which a recording of one job on one GPU is expected.

    Attributes:
        power_w: Mean power, W.
        speed: Relative to no limit.
    """

    power_w: tuple[float, float]
    speed: tuple[float, float]


def limit_range(model: GpuModel, limit_w: float, busy_w: float | None = None) -> LimitRange:
    """The stated range of power and speed under a limit: that of all cases, and of the model.

    The range of the cases is widened at both ends by the error of the model on GPU types that it
    was not fitted to (`PooledFit.range_error`). Power may then be above the limit, and speed above
    1, as in recordings.

    Args:
        model: The GPU type.
        limit_w: Power limit of the GPU, W.
        busy_w: Measured mean power of the job on one GPU without limit, W.
    """
    cases = [curve(model, case).under_limit(limit_w, busy_w) for case in BOUNDNESS]
    error = read_gpu_types().pooled.range_error
    power_w, speed = (
        (min(values) * (1 - error), max(values) * (1 + error))
        for values in zip(*cases, strict=True)
    )
    return LimitRange(power_w, speed)


def curve(
    model: GpuModel, case: Boundness, pooled: PooledFit | None = None
) -> LimitCurve | SweepCurve:
    """Power and speed of one GPU of a type under a limit, for a case of boundness.

    Those of a sweep are the same in all cases.

    Args:
        model: The GPU type.
        case: One of `BOUNDNESS`. Speed is lowest in ``high``, power in ``high`` or ``low``.
        pooled: Other figures than the shipped ones.
    """
    if model.sweep:
        return SweepCurve(model.sweep)
    pooled = pooled or read_gpu_types().pooled
    fit = pooled.cases[case]
    return LimitCurve(
        base_w=model.base_w,
        busy_w=model.busy_w,
        unlimited_w=model.default_limit_w,
        boundness=fit.boundness,
        peak_w=fit.peak_share * model.default_limit_w,
        clock=pooled.shape.clock,
    )

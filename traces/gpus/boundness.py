"""How far a recorded load is bound by the clock of its GPU, from two of its limits or more."""

from collections.abc import Sequence

from wattkeeper.traces.gpus.curve import LEAST_SHARE
from wattkeeper.traces.gpus.model import GpuModel, read_gpu_types


def measure_boundness(
    model: GpuModel, limits_w: Sequence[float], powers_w: Sequence[float], times_s: Sequence[float]
) -> float | None:
    """Share of its time that is inverse to the clock, 0 to 1; power is steady, as in `low`.

    The least squares over the limits that are below what the load draws at the highest one, which
    stands for none. None where no limit is: each of them changes nothing.

    Args:
        model: The GPU type, of which base power and the shape of the clock are used.
        limits_w: Of one GPU, W, ascending.
        powers_w: Mean power of one GPU at each, W.
        times_s: Time of the same work at each, s.
    """
    busy_w, room_w = powers_w[-1], powers_w[-1] - model.base_w
    clock = read_gpu_types().pooled.shape.clock
    above = below = 0.0
    for limit_w, time_s in zip(limits_w[:-1], times_s, strict=False):
        if limit_w >= busy_w or room_w <= 0:
            continue
        slower = 1 / clock(max(limit_w - model.base_w, LEAST_SHARE * room_w) / room_w) - 1
        above += (time_s / times_s[-1] - 1) * slower
        below += slower**2
    return min(1.0, max(0.0, above / below)) if below else None

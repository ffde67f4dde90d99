"""How often 95 % intervals of a mean hold it, of few values: the candidates for `statistics`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import product

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.arrays import Floats
from wattkeeper.sim.results.statistics import interval, t_quantile

Pair = tuple[Floats, Floats]

RUNS = 4000
RESAMPLES = 2000
Z = 1.959963984540054


def resamples(n: int) -> npt.NDArray[np.int64]:
    """All of them where there are few, else some, shape (resamples, n)."""
    if n <= 5:
        return np.array(list(product(range(n), repeat=n)))
    return np.random.default_rng(0).integers(n, size=(RESAMPLES, n))


def student(x: Floats) -> Pair:
    n = x.shape[1]
    half = t_quantile(0.95, n - 1) * x.std(axis=1, ddof=1) / math.sqrt(n)
    return x.mean(axis=1) - half, x.mean(axis=1) + half


def percentile(x: Floats) -> Pair:
    return _at(x, 0.025)


def expanded(x: Floats) -> Pair:
    n = x.shape[1]
    z = -math.sqrt(n / (n - 1)) * t_quantile(0.95, n - 1)
    return _at(x, 0.5 * math.erfc(-z / math.sqrt(2)))


def stretched(x: Floats) -> Pair:
    n, mean = x.shape[1], x.mean(axis=1)
    factor = math.sqrt(n / (n - 1)) * t_quantile(0.95, n - 1) / Z
    low, high = _at(x, 0.025)
    return mean + factor * (low - mean), mean + factor * (high - mean)


def bootstrap_t(x: Floats) -> Pair:
    n, mean = x.shape[1], x.mean(axis=1)
    error = x.std(axis=1, ddof=1) / math.sqrt(n)
    low, high = np.empty(len(x)), np.empty(len(x))
    rows = resamples(n)
    for at, one in enumerate(x):
        drawn = one[rows]
        spread = drawn.std(axis=1, ddof=1) / math.sqrt(n)
        off = drawn.mean(axis=1) - one.mean()
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(spread > 1e-12 * error[at], off / spread, np.sign(off) * np.inf)
        low[at], high[at] = np.quantile(t, (0.025, 0.975), method="inverted_cdf")
    with np.errstate(invalid="ignore"):
        return mean - high * error, mean - low * error


def used(x: Floats) -> Pair:
    ends = np.array([interval(one) for one in x])
    return ends[:, 0], ends[:, 1]


def _at(x: Floats, level: float) -> Pair:
    means = np.stack([x[:, row].mean(axis=1) for row in resamples(x.shape[1])])
    low, high = np.quantile(means, (level, 1 - level), axis=0)
    return low, high


METHODS: dict[str, Callable[[Floats], Pair]] = {
    "percentile": percentile,
    "expanded percentile": expanded,
    "stretched percentile": stretched,
    "bootstrap-t": bootstrap_t,
    "Student's t": student,
    "as used": used,
}

DATA: dict[str, tuple[Callable[..., Floats], float]] = {
    "normal": (lambda rng, size: rng.normal(size=size), 0.0),
    "uniform": (lambda rng, size: rng.uniform(size=size), 0.5),
    "exponential": (lambda rng, size: rng.exponential(size=size), 1.0),
    "lognormal, sigma 0.5": (lambda rng, size: rng.lognormal(0, 0.5, size=size), math.exp(0.125)),
    "lognormal, sigma 1": (lambda rng, size: rng.lognormal(size=size), math.exp(0.5)),
}


def main() -> None:
    """Print the coverage in %, and the median width over that of Student's t."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    for n in (2, 3, 5, 10):
        print(f"n = {n}: {'':23}" + "".join(f"{name:>22}" for name in METHODS))
        for name, (draw, truth) in DATA.items():
            x = draw(np.random.default_rng(n), (runs, n))
            cells = []
            for method in METHODS.values():
                low, high = method(x)
                held = 100 * np.mean((low <= truth) & (truth <= high))
                width = np.median(high - low) / np.median(np.subtract(*student(x)[::-1]))
                cells.append(f"{held:14.1f} ({width:.2f})")
            print(f"  {name:28}" + "".join(f"{cell:>22}" for cell in cells))


if __name__ == "__main__":
    main()

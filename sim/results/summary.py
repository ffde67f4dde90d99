"""Statistics of runs over seeds: the content of `summary.json` and `metrics.parquet`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from wattkeeper.sim.results.parquet import run_schema
from wattkeeper.sim.results.run_result import RunResult
from wattkeeper.sim.results.statistics import NOT_COMPARED, over_seeds, versus
from wattkeeper.traces.schema import field

VALUES: Final = run_schema(
    field("by", pa.string(), "", "what the run is broken down by; empty: the whole run"),
    field("part", pa.string(), "", "which part of it; empty: the whole run"),
    field("metric", pa.string(), "", "its name"),
    field("value", pa.float64(), "", "its value, in its unit; null: there is none", null=True),
)
"""Schema of `metrics.parquet`."""


def summarise(
    results: Sequence[RunResult], baselines: Mapping[str, str], etas: Mapping[str, float]
) -> dict[str, Any]:
    """Statistics over seeds by variant, against each variant's baseline, and by part.

    Args:
        results: All runs; every variant has the same seeds in the same order.
        baselines: The baseline of each variant.
        etas: The eta of each variant; costs under different ones are not compared.
    """

    def compare(
        variant: str, values: Mapping[str, Mapping[str, Sequence[float]]]
    ) -> dict[str, Any]:
        baseline = baselines[variant]
        base = values.get(baseline, {})
        excluded = results[0].kind.costs if etas[variant] != etas[baseline] else ()
        return {"baseline": baseline} | {
            name: NOT_COMPARED if name in excluded else versus(own, base.get(name, []))
            for name, own in values[variant].items()
        }

    def summarise_part(metrics_of: Callable[[RunResult], Mapping[str, float]]) -> dict[str, Any]:
        values: dict[str, dict[str, list[float]]] = {}
        for result in results:
            for metric, value in metrics_of(result).items():
                values.setdefault(result.variant, {}).setdefault(metric, []).append(value)
        return {
            variant: {
                "metrics": {name: over_seeds(own) for name, own in metrics.items()},
                "versus": compare(variant, values),
            }
            for variant, metrics in values.items()
        }

    def metrics_in(key: str, name: str, result: RunResult) -> Mapping[str, float]:
        return result.by[key].get(name, {})

    keys = {key: sorted({name for r in results for name in r.by[key]}) for key in results[0].by}
    return {
        "variants": summarise_part(lambda result: result.metrics),
        "by": {
            key: {name: summarise_part(partial(metrics_in, key, name)) for name in names}
            for key, names in keys.items()
        },
    }


def metric_values(results: Sequence[RunResult]) -> pa.Table:
    """Every metric of every run and of its parts, in the schema `VALUES`."""
    blocks = [
        (result.variant, result.seed, key, part, metrics)
        for result in results
        for key, parts in ({"": {"": result.metrics}} | result.by).items()
        for part, metrics in parts.items()
    ]
    *keys, metrics = zip(*blocks, strict=True)
    rows = np.repeat(np.arange(len(blocks)), list(map(len, metrics)))
    names = pa.array(list(chain.from_iterable(metrics)), pa.string())
    value = np.array([value for block in metrics for value in block.values()], np.float64)
    values = pa.array(value, mask=~np.isfinite(value))
    columns = [*(pa.array(key).take(rows) for key in keys), names, values]
    return pa.Table.from_arrays(
        [column.cast(want.type) for column, want in zip(columns, VALUES, strict=True)],
        schema=VALUES,
    )

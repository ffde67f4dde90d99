"""Table and metrics of elastic jobs, from their shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.node_use import (
    ElasticScope,
    JobSpan,
    energy_of_nodes,
    find_free,
    on_demand_rent,
    redundant_time_s,
    rent_of_nodes,
    rest_of,
)
from wattkeeper.sim.engine.sources import Source
from wattkeeper.sim.recording.recorder import Recorder
from wattkeeper.sim.recording.row_types import ShapeRow


def shape_columns(rows: Sequence[ShapeRow], source: Source) -> dict[str, pa.Array]:
    """The columns of `schemas.SHAPES` without variant and seed, by name."""
    columns = {name: [getattr(row, name) for row in rows] for name in ShapeRow._fields}
    numbers = np.array(columns.pop("number"), dtype=np.int64)
    copied = np.array(columns.pop("copied_bytes"), dtype=np.float64)
    redundant = {"redundant_s": pa.array(redundant_time_s(rows))} if _any_redundant(rows) else {}
    del columns["redundant_share"]
    if not any(columns["open_s"]):
        del columns["open_s"]
    return {
        "job_id": source.column("job_id", numbers),
        "copied_bytes": pa.array(copied, mask=np.isnan(copied)),
        **redundant,
        **{name: pa.array(values) for name, values in columns.items()},
    }


def _any_redundant(rows: Sequence[ShapeRow]) -> bool:
    """Whether redundant computation is counted apart."""
    return any(row.redundant_share for row in rows)


class ElasticTotals(NamedTuple):
    """What an elastic job did from its first pause to its end.

    Attributes:
        span: That time.
        samples: Samples that were committed.
        steps_s: Time in steps, s.
        lost_s: Of that, in steps that were lost, s.
        open_s: Of `steps_s`, in steps that are neither committed nor lost at its end, s.
        pause_s: Time in pauses, s.
        write_s: Time in writes of checkpoints, s.
        downtimes_s: Time from each loss that interrupted its training until it went on, s.
    """

    span: JobSpan
    samples: float
    steps_s: float
    lost_s: float
    open_s: float
    pause_s: float
    write_s: float
    downtimes_s: tuple[float, ...]

    @property
    def span_s(self) -> float:
        """The length of that time, s."""
        return self.span.end_s - self.span.begin_s

    @property
    def useful_s(self) -> float:
        """Time in steps that were committed, s."""
        return float(rest_of(self.steps_s, self.lost_s, self.open_s))

    @property
    def stopped_s(self) -> float:
        """Time without enough nodes, s."""
        return float(rest_of(self.span_s, self.steps_s, self.pause_s, self.write_s))


def elastic_totals(rows: Sequence[ShapeRow], until_s: float) -> ElasticTotals:
    """The totals of a job, from its rows in order.

    `until_s`: when it ended, s, unless it had trained all its samples before; infinite: it had.
    """
    end_s = rows[-1].until_s if math.isinf(until_s) else until_s
    sums = {
        name: math.fsum(getattr(row, name) for row in rows)
        for name in ("samples", "steps_s", "lost_s", "open_s", "pause_s", "write_s")
    }
    span = JobSpan(rows[0].number, rows[0].time_s, end_s)
    return ElasticTotals(span, **sums, downtimes_s=_downtimes(rows, end_s))


def _downtimes(rows: Sequence[ShapeRow], end_s: float) -> tuple[float, ...]:
    """From each loss that interrupted training until it went on, or until the end, s."""
    spans, down_s = [], math.nan
    for row, following in zip(rows, (*rows[1:], None), strict=True):
        if row.steps_s + row.write_s > 0:
            if not math.isnan(down_s):
                spans.append(row.time_s + row.pause_s - down_s)
                down_s = math.nan
            if following is not None and following.moment != "boundary":
                down_s = row.until_s
    if not math.isnan(down_s):
        spans.append(end_s - down_s)
    return tuple(spans)


def elastic_metrics(
    recorder: Recorder, cluster: ClusterSpec, scope: ElasticScope
) -> dict[str, float]:
    """Metrics of elastic jobs."""
    of_job: dict[int, list[ShapeRow]] = {}
    for row in recorder.shapes:
        of_job.setdefault(row.number, []).append(row)
    finished = recorder.finished_elastic
    totals = [
        elastic_totals(rows, math.inf if number in finished else scope.until_s)
        for number, rows in of_job.items()
    ]
    return _time_metrics(totals) | _node_metrics(totals, recorder, cluster, scope)


def _time_metrics(totals: Sequence[ElasticTotals]) -> dict[str, float]:
    """Samples, and what the time went into."""
    downtimes = np.array([each for total in totals for each in total.downtimes_s])

    def share(seconds: Sequence[float]) -> float:
        spans = [total.span_s for total in totals]
        shares = [each / span for each, span in zip(seconds, spans, strict=True) if span > 0]
        return math.fsum(shares) / len(shares) if shares else math.nan

    return {
        "useful_samples": math.fsum(total.samples for total in totals),
        "goodput": math.fsum(t.samples / t.span_s for t in totals if t.span_s > 0),
        "ettr": share([total.useful_s for total in totals]),
        "lost_share": share([total.lost_s for total in totals]),
        **_where_any("open_share", share([total.open_s for total in totals])),
        "pause_share": share([total.pause_s for total in totals]),
        "checkpoint_share": share([total.write_s for total in totals]),
        "stopped_share": share([total.stopped_s for total in totals]),
        "downtime_s": _quantile(downtimes, 0.5),
        "p99_downtime_s": _quantile(downtimes, 0.99),
    }


def _node_metrics(
    totals: Sequence[ElasticTotals], recorder: Recorder, cluster: ClusterSpec, scope: ElasticScope
) -> dict[str, float]:
    """Energy of nodes, and their rent where prices are known."""
    rows, spans = recorder.shapes, [total.span for total in totals]
    samples = math.fsum(total.samples for total in totals)
    free = find_free(recorder, scope, cluster.nodes, spans)
    energy = energy_of_nodes(rows, free, cluster)
    energy_j = math.fsum(energy)
    absent = set[str]()
    if not _any_redundant(rows):
        absent.add("redundant")
    if not any(row.open_s for row in rows):
        absent.add("open")
    metrics = {
        "elastic_energy_j": energy_j,
        **{
            f"elastic_{part}_j": each
            for part, each in energy._asdict().items()
            if part not in absent
        },
        "useful_sample_j": _each(energy_j, samples),
    }
    if scope.prices is None:
        return metrics
    rent = rent_of_nodes(rows, free, scope.prices.node_hour)
    metrics["elastic_rent"] = math.fsum(rent)
    metrics["lost_rent"] = rent.lost
    if "redundant" not in absent:
        metrics["redundant_rent"] = rent.redundant
    metrics["useful_sample_rent"] = _each(math.fsum(rent), samples)
    if scope.prices.on_demand is not None:
        trained = {total.span.number: total.samples for total in totals}
        price = scope.prices.on_demand
        metrics["on_demand_rent"] = on_demand_rent(trained, scope, spans, price)
    return metrics


def _where_any(metric: str, value: float) -> dict[str, float]:
    """A metric that is there only where it is not 0."""
    return {metric: value} if value > 0 else {}


def _each(total: float, samples: float) -> float:
    return total / samples if samples else math.nan


def _quantile(values: Floats, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else math.nan

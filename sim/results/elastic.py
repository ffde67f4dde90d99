"""Table and metrics of elastic jobs, from their shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.sim.engine.recorder import Recorder, ShapeRow
from wattkeeper.sim.engine.sources import Source


def shape_columns(rows: Sequence[ShapeRow], source: Source) -> dict[str, pa.Array]:
    """The columns of `schemas.SHAPES` without variant and seed, by name."""
    columns = {name: [getattr(row, name) for row in rows] for name in ShapeRow._fields}
    numbers = np.array(columns.pop("number"), dtype=np.int64)
    copied = np.array(columns.pop("copied_bytes"), dtype=np.float64)
    return {
        "job_id": source.column("job_id", numbers),
        "copied_bytes": pa.array(copied, mask=np.isnan(copied)),
        **{name: pa.array(values) for name, values in columns.items()},
    }


class ElasticTotals(NamedTuple):
    """What an elastic job did from its first pause to its end.

    Attributes:
        span_s: That time, s.
        samples: Samples that were committed.
        steps_s: Time in steps, s.
        lost_s: Of that, in steps that were lost, s.
        pause_s: Time in pauses, s.
        write_s: Time in writes of checkpoints, s.
        downtimes_s: Time from each loss that interrupted its training until it went on, s.
    """

    span_s: float
    samples: float
    steps_s: float
    lost_s: float
    pause_s: float
    write_s: float
    downtimes_s: tuple[float, ...]


def elastic_totals(rows: Sequence[ShapeRow], until_s: float) -> ElasticTotals:
    """The totals of a job, from its rows in order.

    `until_s`: when it ended, s, unless it had trained all its samples before; infinite: it had.
    """
    end_s = rows[-1].until_s if math.isinf(until_s) else until_s
    sums = {name: math.fsum(getattr(row, name) for row in rows)
            for name in ("samples", "steps_s", "lost_s", "pause_s", "write_s")}  # fmt: skip
    return ElasticTotals(end_s - rows[0].time_s, **sums, downtimes_s=_downtimes(rows, end_s))


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


def elastic_metrics(recorder: Recorder) -> dict[str, float]:
    """Metrics of elastic jobs; none where none can run."""
    until_s = recorder.elastic_until_s
    if until_s is None:
        return {}
    of_job: dict[int, list[ShapeRow]] = {}
    for row in recorder.shapes:
        of_job.setdefault(row.number, []).append(row)
    finished = recorder.finished_elastic
    totals = [elastic_totals(rows, math.inf if number in finished else until_s)
              for number, rows in of_job.items()]  # fmt: skip
    downtimes = np.array([each for total in totals for each in total.downtimes_s])
    samples = math.fsum(total.samples for total in totals)
    energy_j = math.fsum(recorder.shape_energy().data)

    def share(seconds: Sequence[float]) -> float:
        spans = [total.span_s for total in totals]
        shares = [each / span for each, span in zip(seconds, spans, strict=True) if span > 0]
        return math.fsum(shares) / len(shares) if shares else math.nan

    return {
        "useful_samples": samples,
        "goodput": math.fsum(t.samples / t.span_s for t in totals if t.span_s > 0),
        "ettr": share([total.steps_s - total.lost_s for total in totals]),
        "lost_share": share([total.lost_s for total in totals]),
        "pause_share": share([total.pause_s for total in totals]),
        "checkpoint_share": share([total.write_s for total in totals]),
        "stopped_share": share([t.span_s - t.steps_s - t.pause_s - t.write_s for t in totals]),
        "downtime_s": _quantile(downtimes, 0.5),
        "p99_downtime_s": _quantile(downtimes, 0.99),
        "elastic_energy_j": energy_j,
        "useful_sample_j": energy_j / samples if samples else math.nan,
    }


def _quantile(values: Floats, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else math.nan

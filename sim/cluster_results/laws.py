"""Laws that the results of every run keep: power and energy are conserved, and nothing is negative.

`check_balance` looks at the timeline and the account of energy, and is a part of every run.
`check_laws` looks at all tables; `wattkeeper run --check`, `wattkeeper bench` and tests use it.
One module, so that all laws stand side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.errors import Problem, WattkeeperError
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.accounting import CARBON, COST, ENERGY, Account, Window
from wattkeeper.sim.results.parquet import AnyTable, StoredTable

ROUNDING: Final = 1e-9
"""Sums that should be equal differ by less, relative to the sum of their sizes."""

SUM_ROUNDING: Final = 1e-6
"""The account sums up changes of power times what is left of the window: of long runs with many
changes that is a sum of large numbers, which is exact to `ROUNDING` times this share of them."""

SLACK_W: Final = 1e-5
"""Power that should be below a cap is above it by less, by rounding."""

ENERGIES: Final = "_energy_j"

Cap = Callable[[float, float], tuple[Floats, Floats]]
"""The power cap of all GPUs between two times (s): when it changes (s), the first time among them,
and what it is from then on (W)."""


class LawBroken(WattkeeperError):
    """The results of a run break a law of conservation: a fault of wattkeeper (exit code 1)."""

    exit_code = 1


class RunLaws(NamedTuple):
    """What the laws of a run need to know besides its tables and metrics.

    Attributes:
        cluster: Its cluster.
        cap: Its power cap; None: there is none.
        recorded: Whether jobs hold their GPUs for their recorded duration, however long they train.
        measured: Whether all power is known.
        is_whole: Whether the energy of the cluster is counted over the whole run.
        jobs: Ids of the jobs that were submitted; empty: not known.
        unable: Ids of those that are counted as unable to end.
    """

    cluster: ClusterSpec
    cap: Cap | None = None
    recorded: bool = False
    measured: bool = True
    is_whole: bool = True
    jobs: frozenset[str] = frozenset()
    unable: frozenset[str] = frozenset()


def check_balance(line: AnyTable, account: Account, *, measured: bool) -> None:
    """Check that energy is the integral of power, and that neither it nor busy GPUs is negative.

    Args:
        line: The timeline.
        account: The energy over a window.
        measured: Whether all power is known.

    Raises:
        LawBroken: If not.
    """
    _refuse(list(_find_imbalances(line, account, measured)))


def check_laws(tables: Mapping[str, AnyTable], metrics: Mapping[str, float], laws: RunLaws) -> None:
    """Check the laws of a run over all of its tables.

    Args:
        tables: By name, in the schemas of `schemas.TABLES`.
        metrics: Of the whole run, by name.
        laws: What they need to know besides.

    Raises:
        LawBroken: If the results break some; each problem names the table and the row.
    """
    _refuse(
        [
            *_find_negatives(tables, metrics),
            *_find_above_cap(tables["timeline"], laws),
            *_find_uneven_energy(tables["jobs"], metrics, laws),
            *_find_wrong_times(tables["jobs"], laws),
            *_find_overlaps(tables["jobs"]),
            *_find_wrong_decisions(tables),
            *_find_lost_jobs(tables["jobs"], laws),
            *_find_on_lost_nodes(tables),
            *_find_uneven_shapes(tables, metrics, laws),
            *_find_uneven_usage(tables, metrics),
        ]
    )


def _refuse(problems: list[Problem]) -> None:
    if problems:
        about = Problem(
            "the results break laws of conservation, and are not written: a fault of wattkeeper"
        )
        raise LawBroken([about, *problems])


def _find_imbalances(line: AnyTable, account: Account, measured: bool) -> Iterator[Problem]:
    gpus = float(account.gpus)
    yield from _find_outside("timeline.gpus_busy", _parts(line, "gpus_busy"), 0.0, gpus)
    yield from _find_outside("timeline.jobs_waiting", _parts(line, "jobs_waiting"), 0.0)
    if not measured:
        return
    yield from _find_outside("timeline.power_w", _parts(line, "power_w"), 0.0)
    metrics = account.metrics()
    for name, value in metrics.items():
        if name.endswith(ENERGIES) and value < 0:
            yield Problem(f"{name} is {value:.9g} J; allowed is 0 or more")
    drawn = _integrate(line, account.window)
    if drawn.is_covered:
        error_j = abs(metrics[ENERGY] - drawn.energy_j)
        if error_j > ROUNDING * max(drawn.energy_j, drawn.span_s * drawn.change_w * SUM_ROUNDING):
            yield Problem(
                f"{ENERGY} is {metrics[ENERGY]:.12g} J, the integral of timeline.power_w "
                f"{drawn.energy_j:.12g} J"
            )


class _Drawn(NamedTuple):
    """The power of a timeline over a window.

    Attributes:
        energy_j: Its integral, J.
        span_s: Length of the timeline, s.
        change_w: Sum of the sizes of all its changes, and of the first value, W.
        is_covered: Whether the window lies within the timeline.
    """

    energy_j: float
    span_s: float
    change_w: float
    is_covered: bool


def _integrate(line: AnyTable, window: Window) -> _Drawn:
    sums, first_s, last_s, last_w, change_w = list[float](), math.nan, math.nan, 0.0, 0.0
    for time_s, power_w in zip(_parts(line, "time_s"), _parts(line, "power_w"), strict=True):
        if not len(time_s):
            continue
        if math.isnan(first_s):
            first_s = last_s = float(time_s[0])
        clipped = window.clip(np.concatenate([[last_s], time_s]))
        steps = np.concatenate([[last_w], power_w])
        sums.append(math.fsum((steps[:-1] * np.diff(clipped)).data))
        change_w += float(np.abs(np.diff(steps)).sum())
        last_s, last_w = float(time_s[-1]), float(power_w[-1])
    is_covered = first_s <= window.from_s and window.until_s <= last_s
    return _Drawn(math.fsum(sums), last_s - first_s, change_w, is_covered)


def _parts(table: AnyTable, name: str) -> Iterator[npt.NDArray[Any]]:
    """A column of numbers in parts; absent values are NaN."""
    chunks = table.read_parts(name) if isinstance(table, StoredTable) else table[name].chunks
    for chunk in chunks:
        yield chunk.to_numpy(zero_copy_only=False)


def _column(table: AnyTable, name: str) -> npt.NDArray[Any]:
    """A column of numbers; absent values are NaN."""
    return np.concatenate([*_parts(table, name), np.zeros(0)])


def _texts(table: AnyTable, name: str) -> list[Any]:
    return list(table[name].to_pylist())


def _find_outside(
    name: str, parts: Iterator[npt.NDArray[Any]], least: float, most: float = math.inf
) -> Iterator[Problem]:
    """The first value of a column outside of a range."""
    begin = 0
    for values in parts:
        wrong = np.flatnonzero((values < least) | (values > most))
        if len(wrong):
            allowed = f"{least:g} or more" if math.isinf(most) else f"{least:g} to {most:g}"
            value = float(values[wrong[0]])
            yield Problem(f"{name} is {value:.9g}; allowed is {allowed}", f"row {begin + wrong[0]}")
            return
        begin += len(values)


def _find_negatives(
    tables: Mapping[str, AnyTable], metrics: Mapping[str, float]
) -> Iterator[Problem]:
    """Times, energies, powers and counts below 0."""
    for name, table in tables.items():
        for column in table.schema:
            where = f"{name}.{column.name}"
            if where not in SIGNED and _is_number(column.type):
                yield from _find_outside(where, _parts(table, column.name), 0.0)
    for metric, value in metrics.items():
        if metric not in SIGNED_METRICS and value < 0:
            yield Problem(f"the metric {metric} is {value:.9g}; allowed is 0 or more")


SIGNED: Final = {
    *(f"{table}.time_s" for table in ("decisions", "timeline", "nodes", "shapes", "models")),
    *(f"jobs.{moment}_s" for moment in ("submit_time", "start_time", "finish_time", "deadline")),
    "jobs.electricity_cost",
    "usage.electricity_cost",
    "usage.idle_electricity_cost",
    "decisions.saw",
    "nodes.deadline_s",
    "shapes.until_s",
    "models.saved_gpu_s",
}
"""Columns that may be negative: digests, times since a given origin, and savings."""

SIGNED_METRICS: Final = {"regret", "gpu_s_saved", "electricity_cost", "year_electricity_cost"}
"""Metrics that may be negative; prices may be."""


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _find_above_cap(line: AnyTable, laws: RunLaws) -> Iterator[Problem]:
    """Power above the cap."""
    if laws.cap is None or not laws.measured:
        return
    time_s, power_w = _column(line, "time_s"), _column(line, "power_w") / laws.cluster.pue
    if not len(time_s):
        return
    changes_s, caps_w = laws.cap(float(time_s[0]), float(time_s[-1]))
    at_s = np.union1d(time_s, changes_s)
    rows = np.searchsorted(time_s, at_s, side="right") - 1
    cap_w = caps_w[np.searchsorted(changes_s, at_s, side="right") - 1]
    above = np.flatnonzero(power_w[rows] > cap_w + SLACK_W)
    if len(above):
        first = int(above[0])
        yield Problem(
            f"GPUs draw {power_w[rows[first]]:.9g} W at {at_s[first]:.9g} s; the cap is "
            f"{cap_w[first]:.9g} W",
            f"timeline, row {rows[first]}",
        )


def _find_uneven_energy(
    jobs: AnyTable, metrics: Mapping[str, float], laws: RunLaws
) -> Iterator[Problem]:
    """Attempts whose energies are not that of the GPUs that jobs hold, in sum."""
    if not (laws.measured and laws.is_whole) or "training_energy_j" not in metrics:
        return
    own_j = math.fsum(_column(jobs, "energy_j").data)
    held_j = (metrics["training_energy_j"] + metrics["held_energy_j"]) / laws.cluster.pue
    whole_j = metrics[ENERGY] / laws.cluster.pue
    if abs(own_j - held_j) > 1e-7 * max(own_j, held_j) + ROUNDING * whole_j:
        yield Problem(
            f"all attempts together take {own_j:.12g} J, the GPUs that jobs hold {held_j:.12g} J",
            "jobs.energy_j",
        )


def _find_wrong_times(jobs: AnyTable, laws: RunLaws) -> Iterator[Problem]:
    """Attempts that end before they start, start before their submission, or last otherwise."""
    submit_s, start_s, finish_s, time_s, overhead_s = (
        _column(jobs, name)
        for name in ("submit_time_s", "start_time_s", "finish_time_s", "time_s", "overhead_s")
    )
    eps_s = ROUNDING * np.maximum(1.0, np.abs(finish_s))
    yield from _name_rows("starts before it is submitted", start_s < submit_s - eps_s, jobs)
    yield from _name_rows("ends before it starts", finish_s < start_s - eps_s, jobs)
    if "lost_time_s" in jobs.column_names:
        lost = _column(jobs, "lost_time_s") > time_s * (1 + ROUNDING) + eps_s
        lost |= _column(jobs, "lost_energy_j") > _column(jobs, "energy_j") * (1 + ROUNDING) + 1e-6
        yield from _name_rows("lost more than it had", lost, jobs)
    if laws.recorded:
        return
    off_s = np.abs(time_s + overhead_s - (finish_s - start_s))
    wrong = _stays(jobs) & (off_s > 1e-7 * (finish_s - start_s) + 10 * eps_s)
    yield from _name_rows(
        "holds GPUs for another time than its training and overheads", wrong, jobs
    )


def _name_rows(what: str, wrong: Bools, jobs: AnyTable) -> Iterator[Problem]:
    """The first attempt of some that break a law."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        row = int(rows[0])
        job = _texts(jobs, "job_id")[row]
        yield Problem(
            f"attempt {_texts(jobs, 'attempt')[row]} of job {job} {what}"
            + f", and {len(rows) - 1} others" * (len(rows) > 1),
            f"jobs, row {row}",
        )


def _find_overlaps(jobs: AnyTable) -> Iterator[Problem]:
    """Attempts of a job that overlap, or are not numbered from 1."""
    number = _codes(jobs, "job_id")
    attempt = _column(jobs, "attempt").astype(np.int64)
    order = np.lexsort((attempt, number))
    same = number[order][1:] == number[order][:-1]
    first = np.append(True, ~same)[: len(order)]
    wrong = np.zeros(len(order), dtype=bool)
    wrong[order[first & (attempt[order] != 1)]] = True
    later = np.flatnonzero(same) + 1
    wrong[order[later[attempt[order[later]] != attempt[order[later - 1]] + 1]]] = True
    yield from _name_rows("is not numbered as the next one", wrong, jobs)
    start_s, finish_s = _column(jobs, "start_time_s"), _column(jobs, "finish_time_s")
    overlap = np.zeros(len(order), dtype=bool)
    eps_s = ROUNDING * np.maximum(1.0, np.abs(finish_s))
    before = order[later - 1]
    overlap[order[later[start_s[order[later]] < finish_s[before] - eps_s[before]]]] = True
    yield from _name_rows("starts before the one before it ends", overlap, jobs)


def _codes(table: AnyTable, name: str) -> Ints:
    """An index for each text of a column."""
    codes: Ints = table[name].combine_chunks().dictionary_encode().indices.to_numpy()
    return codes


def _find_wrong_decisions(tables: Mapping[str, AnyTable]) -> Iterator[Problem]:
    """Decisions about an attempt that has no row, or while another attempt of its job runs."""
    jobs, decisions = tables["jobs"], tables["decisions"]
    keys = zip(_texts(jobs, "job_id"), _column(jobs, "attempt").tolist(), strict=True)
    spans = zip(
        _column(jobs, "start_time_s").tolist(), _column(jobs, "finish_time_s").tolist(), strict=True
    )
    span_of = dict(zip(keys, spans, strict=True))
    elastic = set(_texts(tables["shapes"], "job_id")) if "shapes" in tables else set[str]()
    for key in _unfinished(jobs):
        span_of[key] = span_of[key][0], math.inf
    points, chose = _texts(decisions, "point"), _texts(decisions, "chose")
    rows = zip(
        _column(decisions, "time_s").tolist(),
        points,
        _texts(decisions, "job_id"),
        _column(decisions, "attempt").tolist(),
        chose,
        strict=True,
    )
    for row, (time_s, point, job, attempt, choice) in enumerate(rows):
        span = span_of.get((job, attempt))
        where = f"decisions, row {row}"
        if span is None:
            if point in ("select", "place") and (job, attempt - 1) not in span_of:
                yield Problem(
                    f"attempt {attempt:g} of job {job} began, and has no row in jobs", where
                )
                return
            continue
        eps_s = ROUNDING * max(1.0, abs(time_s))
        early = job in elastic and time_s < span[0]  # of one that ended as it began
        if not (early or span[0] - eps_s <= time_s) or time_s > span[1] + eps_s:
            yield Problem(
                f"{point} chose {choice!r} at {time_s:.9g} s for attempt {attempt:g} of job {job}, "
                f"which runs from {span[0]:.9g} to {span[1]:.9g} s",
                where,
            )
            return


def _unfinished(jobs: AnyTable) -> list[tuple[str, float]]:
    """Job and number of attempts that lost their GPUs, but no node, and wait for ever."""
    keys = list(zip(_texts(jobs, "job_id"), _column(jobs, "attempt").tolist(), strict=True))
    known, reached = set(keys), _texts(jobs, "reached_target")
    lost = _texts(jobs, "lost_node") if "lost_node" in jobs.column_names else [None] * len(keys)
    return [
        (job, attempt)
        for (job, attempt), ended, node in zip(keys, reached, lost, strict=True)
        if not ended and node is None and (job, attempt + 1) not in known
    ]


def _find_lost_jobs(jobs: AnyTable, laws: RunLaws) -> Iterator[Problem]:
    """Jobs that were submitted, and neither ran nor are counted as unable to."""
    lost = sorted(laws.jobs.difference(_texts(jobs, "job_id"), laws.unable))
    if lost:
        yield Problem(
            f"job {lost[0]} neither ran nor is counted as unable to end"
            + f", and {len(lost) - 1} others" * (len(lost) > 1),
            "jobs",
        )


def _find_on_lost_nodes(tables: Mapping[str, AnyTable]) -> Iterator[Problem]:
    """Attempts on a node that was down."""
    if "nodes" not in tables:
        return
    nodes, jobs = tables["nodes"], tables["jobs"]
    downs: dict[int, list[tuple[float, float]]] = {}
    since: dict[int, float] = {}
    rows = zip(
        _column(nodes, "time_s").tolist(),
        _column(nodes, "node").tolist(),
        _texts(nodes, "event"),
        strict=True,
    )
    for time_s, node, event in rows:
        if event in ("absent", "down"):
            since[node] = time_s
        elif event == "up":
            downs.setdefault(node, []).append((since.pop(node), time_s))
    for node, since_s in since.items():
        downs.setdefault(node, []).append((since_s, math.inf))
    spans = {node: np.array(its_downs).T for node, its_downs in downs.items()}
    start_s, finish_s = _column(jobs, "start_time_s"), _column(jobs, "finish_time_s")
    wrong = np.zeros(len(jobs), dtype=bool)
    for row, its_nodes in enumerate(jobs["node_ids"].to_pylist()):
        for node in its_nodes:
            if node in spans:
                from_s, to_s = spans[node]
                after = np.searchsorted(to_s, start_s[row], side="right")
                wrong[row] |= after < len(from_s) and from_s[after] < finish_s[row]
    yield from _name_rows("holds a node that is down", wrong & _stays(jobs), jobs)


def _stays(jobs: AnyTable) -> Bools:
    """Whether attempts held the same GPUs from their start to their end."""
    stays = _column(jobs, "preemptions") == 0
    if "tune_paused_s" in jobs.column_names:
        stays &= _column(jobs, "tune_paused_s") == 0
    return np.asarray(stays)


def _find_uneven_shapes(
    tables: Mapping[str, AnyTable], metrics: Mapping[str, float], laws: RunLaws
) -> Iterator[Problem]:
    """Shapes of elastic jobs whose parts are more than the whole, and parts of their energy."""
    if "shapes" not in tables:
        return
    shapes = tables["shapes"]
    if len(shapes):
        begin_s, end_s, pause_s, steps_s, write_s, lost_s = (
            _column(shapes, name)
            for name in ("time_s", "until_s", "pause_s", "steps_s", "write_s", "lost_s")
        )
        gone_s = lost_s + (_column(shapes, "open_s") if "open_s" in shapes.column_names else 0.0)
        eps_s = 1e-7 * np.maximum(1.0, end_s)
        for what, wrong in (
            ("more time than it lasts", pause_s + steps_s + write_s > end_s - begin_s + eps_s),
            ("more lost or left open than was trained", gone_s > steps_s + eps_s),
        ):
            rows = np.flatnonzero(wrong)
            if len(rows):
                yield Problem(f"a shape has {what}", f"shapes, row {rows[0]}")
        ids, jobs = set(_texts(shapes, "job_id")), tables["jobs"]
        is_elastic = np.array([job in ids for job in _texts(jobs, "job_id")], dtype=bool)
        own_j = math.fsum(_column(jobs, "energy_j")[is_elastic].tolist())
        used_j = metrics["elastic_energy_j"] - metrics["elastic_waiting_j"]
        if laws.measured and used_j > own_j * (1 + 1e-7) + 1e-6:
            yield Problem(
                f"parts of elastic_energy_j but for waiting are {used_j:.12g} J, the attempts of "
                f"elastic jobs take {own_j:.12g} J"
            )
    parts = [
        value
        for name, value in metrics.items()
        if name.startswith("elastic_") and name.endswith("_j") and name != "elastic_energy_j"
    ]
    whole_j = metrics.get("elastic_energy_j", 0.0)
    if abs(math.fsum(parts) - whole_j) > ROUNDING * whole_j:
        yield Problem(f"elastic_energy_j is {whole_j:.12g} J, its parts {math.fsum(parts):.12g} J")


def _find_uneven_usage(
    tables: Mapping[str, AnyTable], metrics: Mapping[str, float]
) -> Iterator[Problem]:
    """Amounts of all owners and nobody that are not those of the cluster, in sum."""
    if "usage" not in tables:
        return
    usage = tables["usage"]
    wholes = {
        ENERGY: ("energy_j", "idle_energy_j"),
        COST: (COST, f"idle_{COST}"),
        CARBON: (CARBON, f"idle_{CARBON}"),
    }
    for metric, columns in wholes.items():
        if columns[0] not in usage.column_names:
            continue
        parts = np.concatenate([_column(usage, name) for name in columns])
        if abs(math.fsum(parts) - metrics[metric]) > ROUNDING * float(np.abs(parts).sum()):
            yield Problem(
                f"{metric} is {metrics[metric]:.12g}, that of all owners and nobody "
                f"{math.fsum(parts):.12g}",
                "usage",
            )

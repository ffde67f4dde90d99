"""Who used what: energy of a cluster, its cost and emissions by the owners of its jobs.

Who holds GPUs bears a share of what free GPUs draw meanwhile, by the number of held GPUs: it keeps
the cluster on. While nobody holds any, that is nobody's. So all owners and nobody add up to the
energy of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.points.job import WHOLE
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.accounting import (
    ENERGY,
    ROUNDING,
    Clock,
    HeldGpus,
    Sleeps,
    Tariff,
    Window,
    find_pauses,
    find_sleeps,
    seconds,
)
from wattkeeper.sim.recording.recorder import UNITS_PER_WATT, Recorder
from wattkeeper.sim.recording.row_types import PowerChangeRow
from wattkeeper.traces.arrow import encode

PERSONS: Final = ("user", "account")
"""Columns of jobs that say who pays; the first one that is known."""
UNKNOWN: Final = "-"
"""The owner of jobs that name none."""
IDLE: Final = "idle_"
"""Begins the columns of the share of free GPUs."""


class Owners(NamedTuple):
    """The owners of jobs.

    Attributes:
        codes: Index of the owner of each job, by `Job.number`, shape (jobs,).
        names: Their names.
    """

    codes: Ints
    names: Sequence[str]


class HeldSpans(NamedTuple):
    """Spans of time for which owners hold GPUs, shapes (spans,).

    Attributes:
        owner: Index of the owner.
        from_s: Begin, s.
        to_s: End, s.
        thousandths: Thousandths of GPUs.
        gpu_type: Index of their type in the cluster's `gpu_types`.
    """

    owner: Ints
    from_s: Floats
    to_s: Floats
    thousandths: Ints
    gpu_type: Ints

    def sum_by_owner(self, amounts: Floats, owners: int) -> Floats:
        """Sums of amounts, which are of each span, shape (owners,)."""
        return np.bincount(self.owner, amounts, owners).astype(float)


def find_owner_column(jobs: pa.Table, columns: Sequence[str] = (*PERSONS, "queue")) -> str:
    """The first of some columns that names an owner of a job; empty if none does."""
    there = (name for name in columns if name in jobs.column_names)
    return next((name for name in there if jobs[name].null_count < len(jobs)), "")


def find_owners(jobs: pa.Table) -> Owners | None:
    """The users of jobs, else their accounts, else their queues; None if none is named."""
    column = find_owner_column(jobs)
    if not column:
        return None
    codes, names = encode(jobs[column].fill_null(UNKNOWN))
    return Owners(codes, names)


class OwnerShares(NamedTuple):
    """What free GPUs draw, by who bears it: J, or another quantity that accrues with power.

    Attributes:
        of_owners: Shape (owners,).
        of_nobody: While no GPU is held.
    """

    of_owners: Floats
    of_nobody: float


def share_free_gpus(
    spans: HeldSpans,
    owners: int,
    cluster: ClusterSpec,
    sleeps: Sleeps,
    window: Window,
    clocks: Mapping[str, Clock],
) -> dict[str, OwnerShares]:
    """Who bears what free GPUs draw in a window, by clock.

    Of each stretch in which the same GPUs are held, each owner bears the part that its GPUs are of
    all that are held. Nodes that sleep draw their sleep power.
    """
    order, times_s, is_last = _merge_steps(spans, sleeps)
    none = np.zeros(2 * len(sleeps.from_s))
    steps = np.concatenate([spans.thousandths, -spans.thousandths, none.astype(np.int64)])[order]
    types = np.concatenate([spans.gpu_type, spans.gpu_type, none.astype(np.int64)])[order]
    saved_w = sleeps.awake_w - sleeps.asleep_w
    drawn_w = cluster.idle_power_w - np.cumsum(
        np.concatenate([np.zeros(2 * len(spans.from_s)), saved_w, -saved_w])[order]
    )
    for index, gpu_type in enumerate(cluster.gpu_types):
        of_type = np.cumsum(np.where(types == index, steps, 0))
        drawn_w -= of_type * (cluster.power[gpu_type].idle_w / WHOLE)
    held = np.concatenate([[0], np.cumsum(steps)[is_last]])
    free_w = np.concatenate([[cluster.idle_power_w], drawn_w[is_last]])
    free_w[np.abs(free_w) < ROUNDING * cluster.idle_power_w] = 0.0
    edges_s = np.concatenate([[window.from_s], window.clip(times_s[is_last]), [window.until_s]])
    per_held = np.divide(free_w, held, out=np.zeros(len(held)), where=held > 0)
    begins, ends = (
        np.searchsorted(edges_s, window.clip(each)) for each in (spans.from_s, spans.to_s)
    )
    shares = {}
    for name, clock in clocks.items():
        lengths = np.diff(clock(edges_s))
        borne = np.concatenate([[0.0], np.cumsum(per_held * lengths)])
        amounts = spans.thousandths * (borne[ends] - borne[begins])
        of_nobody = float((free_w * lengths)[held == 0].sum())
        shares[name] = OwnerShares(spans.sum_by_owner(amounts, owners), of_nobody)
    return shares


def _merge_steps(spans: HeldSpans, sleeps: Sleeps) -> tuple[Ints, Floats, Bools]:
    """The order of all begins and ends, their times, and whether each is the last at its time."""
    times_s = np.concatenate([spans.from_s, spans.to_s, sleeps.from_s, sleeps.to_s])
    order = np.argsort(times_s, kind="stable")
    times_s = times_s[order]
    return order, times_s, np.append(times_s[1:] != times_s[:-1], True)[: len(order)]


def _find_spans(recorder: Recorder, held: HeldGpus, owner: Ints) -> HeldSpans:
    """The spans between the begins, pauses and ends of attempts, whose owners are given.

    A pause is not subtracted from a longer span: what is left of one may round to less than 0.
    """
    rows, paused_s, resumed_s = find_pauses(recorder)
    begins_s = np.concatenate([recorder.column("begun_s"), resumed_s])
    ends_s = np.concatenate([paused_s, recorder.column("ended_s")])
    attempts = np.arange(len(owner))
    begun, ended = np.concatenate([attempts, rows]), np.concatenate([rows, attempts])
    if len(rows):  # the n-th begin of a job belongs to its n-th end
        number = recorder.column("number")
        first = np.lexsort((begins_s, number[begun]))
        begun, begins_s = begun[first], begins_s[first]
        ends_s = ends_s[np.lexsort((ends_s, number[ended]))]
    return HeldSpans(
        owner[begun],
        begins_s,
        ends_s,
        held.thousandths[begun].astype(np.int64),
        held.gpu_type[begun],
    )


def attribute(
    recorder: Recorder,
    cluster: ClusterSpec,
    held: HeldGpus,
    window: Window,
    tariff: Tariff,
    owners: Owners,
) -> dict[str, pa.Array]:
    """The columns of `schemas.USAGE`: a row an owner, the largest first, then one of nobody."""
    number = recorder.column("number")
    owner, size = owners.codes[number], len(owners.names)
    begun_s, ended_s = recorder.column("begun_s"), recorder.column("ended_s")
    spans = _find_spans(recorder, held, owner)
    changed, changed_s, change = recorder.events(PowerChangeRow)
    last_s = np.full(len(owners.codes), window.until_s)
    last_s[number] = ended_s  # attempts are in order of ending
    idle_w = np.array([cluster.power[name].idle_w for name in cluster.gpu_types])
    clocks: dict[str, Clock] = {ENERGY: seconds, **tariff.clocks()}
    shares = share_free_gpus(spans, size, cluster, find_sleeps(recorder), window, clocks)
    gpus = spans.thousandths / WHOLE
    columns: dict[str, Floats] = {}
    for name, clock in clocks.items():

        def accrued(from_s: Floats, to_s: Floats, clock: Clock = clock) -> Floats:
            return clock(window.clip(to_s)) - clock(window.clip(from_s))

        length = accrued(spans.from_s, spans.to_s)
        own = spans.sum_by_owner(length * gpus * idle_w[spans.gpu_type], size)
        above = accrued(begun_s, ended_s) * recorder.column("power")
        # a job's changes add up to 0, so that they may count until any time
        more = accrued(changed_s, last_s[changed]) * change
        own += np.bincount(owner, above, size) / UNITS_PER_WATT
        own += np.bincount(owners.codes[changed], more, size) / UNITS_PER_WATT
        key = "energy_j" if name == ENERGY else name
        columns[key] = np.append(own, 0.0) * cluster.pue
        columns[IDLE + key] = np.append(*shares[name]) * cluster.pue
    whole = (columns["energy_j"] + columns[f"{IDLE}energy_j"])[:-1]
    order = np.append(np.argsort(-whole, kind="stable"), size)
    first = recorder.column("attempt") == 1
    gpu_s = spans.sum_by_owner(gpus * (window.clip(spans.to_s) - window.clip(spans.from_s)), size)
    jobs = np.bincount(owner[first], minlength=size)
    return {
        "name": pa.array([*owners.names, None], pa.string()).take(pa.array(order)),
        "jobs": pa.array(np.append(jobs, 0)[order]),
        "gpu_s": pa.array(np.append(gpu_s, 0.0)[order]),
        **{name: pa.array(values[order]) for name, values in columns.items()},
    }


def widen_nobody(usage: pa.Table, added: Mapping[str, float]) -> pa.Table:
    """The table with more in the row of nobody, by the metric of the cluster."""
    for metric, amount in added.items():
        key = IDLE + ("energy_j" if metric == ENERGY else metric)
        values = usage[key].to_numpy().copy()
        values[-1] += amount
        usage = usage.set_column(usage.column_names.index(key), usage.field(key), [values])
    return usage

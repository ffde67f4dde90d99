"""What jobs drew by a power log: its spans, joined with them by node, GPU and time."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.points.job import WHOLE
from wattkeeper.traces.arrow import replace_column, to_floats
from wattkeeper.traces.power.hosts import expand_hosts, read_gpu_ids, short_name
from wattkeeper.traces.times.zones import to_instants
from wattkeeper.traces.trace import Trace

OPTION: Final = "--power"
CLOCK: Final = "clock"
"""Parameter of a power log: ``utc``, or ``local`` where its times have no zone."""
COLUMNS: Final = ("nodes", "gpu_ids")
"""What a format may say of the places of a job: a list of hosts, and GPUs on them."""
UNTIMED: Final = "no recorded start or duration"
PARTS: Final = "parts of GPUs, whose draw is not told apart"
NOWHERE: Final = "no nodes in the log of jobs"
UNPLACED: Final = (
    "some of the GPUs of their nodes; which is not recorded (gpu_ids, or jobstats in AdminComment, "
    "would say it)"
)
UNSEEN: Final = "no samples where and when they ran"


class GpuEnergy(NamedTuple):
    """The spans of one GPU: sums up to their ends, between which they rise evenly.

    Attributes:
        at_s: Starts and ends, ascending.
        energy_j: Energy up to each, J.
        known_s: Time of known power up to each, s.
    """

    at_s: Floats
    energy_j: Floats
    known_s: Floats

    @classmethod
    def of(cls, start_s: Floats, end_s: Floats, power_w: Floats) -> "GpuEnergy":
        """The series of spans that do not overlap, by time."""
        lengths_s = end_s - start_s
        at_s = np.column_stack([start_s, end_s]).ravel()
        sums = []
        for amounts in (lengths_s * power_w, lengths_s):
            after = np.cumsum(amounts)
            sums.append(np.column_stack([after - amounts, after]).ravel())
        return cls(at_s, *sums)

    def between(self, start_s: Floats, end_s: Floats) -> tuple[Floats, Floats]:
        """Energy (J) and time of known power (s) in windows."""
        energy_j, known_s = (
            np.interp(end_s, self.at_s, sums) - np.interp(start_s, self.at_s, sums)
            for sums in (self.energy_j, self.known_s)
        )
        return np.asarray(energy_j), np.asarray(known_s)


class PowerJoin:
    """Gives jobs the power of their GPUs that a log has.

    Args:
        log: A trace of kind ``power-log``.
        is_utc: Whether the times of the jobs are in UTC, or read from clocks of no stated zone;
            None: they are no dates.
        zone: Zone of the power log's times, where they have none.

    Raises:
        InputError: If the times of log and jobs are not on one clock.
    """

    def __init__(self, log: Trace, is_utc: bool | None, zone: tzinfo | None) -> None:
        table = log.tables["power-log"]
        start_s, end_s = to_floats(table["start_s"]), to_floats(table["end_s"])
        is_local = log.parameters.get(CLOCK) == "local"
        if is_local and zone is not None:
            lengths_s = end_s - start_s
            start_s = to_instants(start_s, zone).first_s
            end_s, is_local = start_s + lengths_s, False
        if is_utc is None or is_local == is_utc:
            clocks = {None: "seconds without a date", True: "in UTC", False: "local dates"}
            raise InputError(
                f"{log.name}: times of the power log are {clocks[not is_local]}, and those of the "
                f"jobs {clocks[is_utc]}; state the zone of the local ones (--zone), or write both "
                "as dates",
                OPTION,
            )
        self._name = log.name
        self._series = self._by_gpu(table, start_s, end_s)
        self._gpus: dict[str, list[str]] = {}
        for node, gpu in self._series:
            self._gpus.setdefault(node, []).append(gpu)
        self._unjoined: Counter[str] = Counter()
        self._jobs, self._joined, self._gpu_s, self._known_s = 0, 0, 0.0, 0.0

    @staticmethod
    def _by_gpu(
        table: pa.Table, start_s: Floats, end_s: Floats
    ) -> Mapping[tuple[str, str], GpuEnergy]:
        nodes = [short_name(node) for node in table["node"].to_pylist()]
        rows: dict[tuple[str, str], list[int]] = {}
        for row, key in enumerate(zip(nodes, table["gpu"].to_pylist(), strict=True)):
            rows.setdefault(key, []).append(row)
        power_w = to_floats(table["power_w"])
        known = np.isfinite(start_s)
        series = {}
        for key, own in rows.items():
            mine = np.array(own)[known[own]]
            mine = mine[np.argsort(start_s[mine], kind="stable")]
            stop_s = np.minimum(end_s[mine], np.append(start_s[mine][1:], np.inf))
            series[key] = GpuEnergy.of(start_s[mine], stop_s, power_w[mine])
        return series

    def apply(self, jobs: pa.Table) -> pa.Table:
        """The jobs with the energy of their GPUs, and the share of their time that it covers.

        Times are those of the log of jobs; the columns `COLUMNS` say where they ran. Over what is
        not covered, a job draws the mean of what is.
        """
        start_s, duration_s = to_floats(jobs["start_time_s"]), to_floats(jobs["duration_s"])
        energy_j, known_s = np.zeros(len(jobs)), np.zeros(len(jobs))
        rows_of: dict[tuple[str, str], list[int]] = {}
        columns = (jobs[name].to_pylist() for name in ("gpus", "gpu_milli", *COLUMNS))
        for row, (gpus, milli, nodes, gpu_ids) in enumerate(zip(*columns, strict=True)):
            if not (np.isfinite(start_s[row]) and duration_s[row] > 0):
                self._unjoined[UNTIMED] += 1
                continue
            try:
                for key in self._place(gpus, milli, nodes or "", gpu_ids or ""):
                    rows_of.setdefault(key, []).append(row)
            except ValueError as error:
                self._unjoined[str(error)] += 1
        for key, rows in rows_of.items():
            if key in self._series:
                own_j, own_s = self._series[key].between(
                    start_s[rows], start_s[rows] + duration_s[rows]
                )
                energy_j[rows] += own_j
                known_s[rows] += own_s
        tried = np.zeros(len(jobs), dtype=bool)
        tried[[row for rows in rows_of.values() for row in rows]] = True
        joined = (known_s > 0) & (energy_j > 0)
        gpu_s = np.asarray(jobs["gpus"]) * duration_s
        self._unjoined[UNSEEN] += int((tried & ~joined).sum())
        self._jobs += len(jobs)
        self._joined += int(joined.sum())
        self._gpu_s += float(gpu_s[joined].sum())
        self._known_s += float(known_s[joined].sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.minimum(known_s / gpu_s, 1.0)
            whole_j = np.where(known_s < gpu_s * (1 - 1e-12), energy_j / share, energy_j)
        mask = pa.array(joined)
        jobs = replace_column(
            jobs, "energy_j", pc.if_else(mask, pa.array(whole_j), jobs["energy_j"])
        )
        shares = pc.if_else(mask, pa.array(share), pa.scalar(None, pa.float64()))
        return replace_column(jobs, "measured_share", shares)

    def _place(self, gpus: int, milli: int, nodes: str, gpu_ids: str) -> Iterator[tuple[str, str]]:
        """The GPUs of a job, by node and name.

        Raises:
            ValueError: Why they are not known.
        """
        if milli != WHOLE:
            raise ValueError(PARTS)
        try:
            hosts = expand_hosts(nodes)
            own = read_gpu_ids(gpu_ids, hosts) if gpu_ids else {}
        except ValueError:
            raise ValueError(NOWHERE) from None
        if not hosts:
            raise ValueError(NOWHERE)
        names = [short_name(host) for host in hosts]
        if own:
            if sum(map(len, own.values())) != gpus:
                raise ValueError(UNPLACED)
            return iter([(node, gpu) for node, listed in own.items() for gpu in listed])
        seen = [name for name in names if name in self._gpus]
        if not seen:
            raise ValueError(UNSEEN)
        if any(len(self._gpus[name]) * len(names) != gpus for name in seen):
            raise ValueError(UNPLACED)
        return iter([(name, gpu) for name in seen for gpu in self._gpus[name]])

    def notes(self) -> Iterator[str]:
        """What was joined, for the readers of the trace."""
        share = 100 * self._known_s / self._gpu_s if self._gpu_s else 0.0
        yield (
            f"Power log {self._name}: {self._joined:,} of {self._jobs:,} jobs draw the mean of its "
            f"samples, which cover {share:.3g} % of their GPU time (measured_share)."
        )
        for reason, count in sorted(self._unjoined.items()):
            if count:
                yield f"Jobs without samples of power log {self._name}: {count:,}: {reason}."

"""Sections of scenarios drawn at random: clusters with losses and caps, jobs of traces, signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from wattkeeper.traces.node_events import NodeEvent, events_table
from wattkeeper.traces.tables import jobs_table
from wattkeeper.traces.trace import Trace

GPU: Final = "SYN-250W"
"""GPU type of the synthetic profiles."""

REAL_GPUS: Final = ("A100-SXM4", "V100-PCIE")
"""GPU types with a model of power limits."""

MOST_JOBS: Final = 24
HORIZON_S: Final = 30_000.0


class SectionDrawer:
    """Draws the sections of a scenario; each answer depends on those before it.

    Args:
        rng: Draws.

    Attributes:
        document: The scenario so far, as its YAML file has it.
        traces: Traces that it names, by name.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.document: dict[str, Any] = {}
        self.traces: dict[str, Trace] = {}

    def chance(self, share: float) -> bool:
        """True with a probability."""
        return bool(self.rng.random() < share)

    def one_of(self, values: Sequence[Any]) -> Any:
        """One of some values, all with the same probability."""
        return values[int(self.rng.integers(len(values)))]

    def number(self, low: float, high: float) -> float:
        """A number with few digits, so that times coincide at times."""
        return round(float(self.rng.uniform(low, high)), int(self.rng.integers(0, 4)))

    def cluster(self, types: Sequence[str]) -> None:
        """Nodes of some GPU types."""
        per_node = int(self.one_of([1, 2, 4, 8]))
        idle_w = {name: self.one_of([0.0, 20.0, 40.0, self.number(0, 60)]) for name in types}
        if len(types) == 1 and self.chance(0.5):
            nodes = int(self.rng.integers(1, 6))
            self.document["cluster"] = {
                "gpu": types[0],
                "gpus": nodes * per_node,
                "gpus_per_node": per_node,
                "idle_power_w": idle_w[types[0]],
                "busy_power_w": self.number(100, 250),
                "gpu_model": REAL_GPUS[0],
            }
        else:
            groups: list[dict[str, Any]] = [
                {"gpu": name, "count": int(self.rng.integers(1, 4)), "gpus": per_node}
                for name in types
            ]
            nodes = 0
            for group in groups:
                nodes += group["count"]
            self.document["cluster"] = {
                "nodes": groups,
                "power": {
                    name: {"idle_w": watts, "busy_w": self.number(100, 250), "model": REAL_GPUS[0]}
                    for name, watts in idle_w.items()
                },
            }
        self.facility(nodes=nodes)

    def facility(
        self, *, nodes: int = 2, caps: bool = True, follow: bool = True, sleeps: bool = True
    ) -> None:
        """Losses, a power cap, sleep and the cost of preemptions."""
        cluster = self.document["cluster"]
        if self.chance(0.3):
            cluster["pue"] = self.number(1, 2)
        if self.chance(0.4):
            cluster["preemption"] = {
                "checkpoint_s": self.number(0, 60),
                "restore_s": self.number(0, 60),
            }
        if sleeps and self.chance(0.25):
            cluster["sleep"] = {
                "after_s": self.number(0, 2000),
                "power_w": 0,
                "wake_s": self.number(0, 100),
            }
        if self.chance(0.5):
            cluster["losses"] = self._losses(nodes)
        gpus = cluster.get("gpus") or sum(g["count"] * g["gpus"] for g in cluster["nodes"])
        least_w = gpus * 60.0
        if caps and self.chance(0.35):
            high_w = round(least_w + gpus * float(self.rng.uniform(0.3, 1.1)) * 190 + 250, 1)
            if follow and self.chance(0.6):
                steps = [[0, high_w]]
                for _ in range(int(self.rng.integers(1, 6))):
                    share = float(self.rng.uniform(0.3, 1.0))
                    at_s = steps[-1][0] + self.number(1, HORIZON_S / 4)
                    steps.append([at_s, round(least_w + (high_w - least_w) * share, 1)])
                self.signal(
                    "cap",
                    {
                        "series": {"steps": [*steps, [steps[-1][0] + HORIZON_S, high_w]]},
                        "unit": "W",
                    },
                )
                cluster["power_cap_w"] = {
                    "signal": "cap",
                    "obey": self.one_of(["preempt", "limits"]),
                }
            else:
                cluster["power_cap_w"] = high_w

    def _losses(self, nodes: int) -> dict[str, Any]:
        """Losses of nodes: drawn, or from a trace in which some never come back."""
        losses: dict[str, Any] = {"boot_s": self.one_of([0, 0, self.number(0, 200)])}
        if self.chance(0.4):
            losses["events"] = {"rate": self.number(100, 8_000), "away_s": self.number(10, 4000)}
            if self.chance(0.4):
                losses["events"]["notice"] = {"share": 0.5, "length_s": 120}
            if self.chance(0.4):
                losses["events"]["degraded"] = {
                    "rate": self.number(100, 20_000),
                    "factor": [1.1, 3],
                }
        else:
            self.traces["events"] = _events_trace(self, nodes)
            losses["events"] = "events"
        if self.chance(0.6):
            losses["checkpoint"] = {
                "every_s": self.one_of(["young", "daly", self.number(10, 3000)]),
                "write_s": self.number(0, 10),
                "read_s": self.number(0, 30),
                "blocking": self.chance(0.7),
                "on_notice": self.chance(0.4),
            }
            if losses["checkpoint"]["on_notice"]:
                losses["checkpoint"]["on_notice"] = self._has_notices(losses)
        losses["requeue"] = self.one_of(["first", "last"])
        return losses

    def _has_notices(self, losses: Mapping[str, Any]) -> bool:
        """Whether losses announce themselves."""
        if isinstance(losses["events"], str):
            events = self.traces["events"].tables["node-events"]["event"].to_pylist()
            return "notice" in events
        return "notice" in losses["events"]

    def drop_unheeded(self) -> None:
        """Leave out what has no effect where all jobs are elastic."""
        cluster = self.document["cluster"]
        cluster.pop("preemption", None)
        for key in ("requeue", "checkpoint"):
            cluster.get("losses", {}).pop(key, None)

    def signal(self, name: str, signal: dict[str, Any]) -> None:
        """Add a signal."""
        self.document.setdefault("signals", {})[name] = signal

    def job_columns(
        self, types: Sequence[str], workloads: Sequence[str], most_gpus: int = 8
    ) -> dict[str, list[Any]]:
        """Columns of jobs, some of them with a workload or on parts of GPUs."""
        count = int(self.rng.integers(3, MOST_JOBS))
        shares = self.chance(0.3) and not workloads
        columns: dict[str, list[Any]] = {"job_id": [f"j{n}" for n in range(count)]}
        submit_s = sorted(self.number(0, HORIZON_S / 3) for _ in range(count))
        columns["submit_time_s"] = submit_s
        columns["duration_s"] = [self.number(1, HORIZON_S / 6) for _ in range(count)]
        columns["estimate_s"] = [d * self.one_of([0.5, 1, 2]) + 1 for d in columns["duration_s"]]
        columns["gpus"] = [int(self.one_of([1, 1, 1, 2, 4, most_gpus])) for _ in range(count)]
        columns["gpu_milli"] = [1000] * count
        columns["user"] = [self.one_of(["u", "v", "w"]) for _ in range(count)]
        columns["gpu_type"] = [self.one_of([*types, None]) for _ in range(count)]
        columns["workload"] = [self.one_of([*workloads, None]) for _ in range(count)]
        for row in range(count):
            if columns["workload"][row] is not None:
                columns["gpus"][row] = 1
                columns["gpu_type"][row] = GPU
            elif shares and self.chance(0.5):
                columns["gpus"][row], columns["gpu_milli"][row] = 1, self.one_of([200, 500, 700])
        return columns

    def add_jobs(self, columns: Mapping[str, Any]) -> None:
        """Add the trace of these jobs."""
        self.traces["jobs"] = Trace(
            name="jobs",
            kind="jobs",
            format="random",
            origin="synthetic",
            tables={"jobs": jobs_table(columns)},
            source="drawn",
            licence="none",
        )

    def occupy_at_once(self) -> None:
        """Recorded occupancy starts all jobs at once, on GPUs enough, without any loss."""
        cluster = self.document["cluster"]
        for key in ("losses", "power_cap_w", "sleep", "preemption"):
            cluster.pop(key, None)
        self.document.pop("signals", None)
        self.traces.pop("events", None)
        if "nodes" in cluster:
            cluster["nodes"][0].update(count=MOST_JOBS, gpus=8)
        else:
            cluster.update(gpus=8 * MOST_JOBS, gpus_per_node=8)


def _events_trace(drawer: SectionDrawer, nodes: int) -> Trace:
    """Nodes that go down, come back or not, give notice, and become slow."""
    events, down, now_s = list[NodeEvent](), set[int](), 0.0
    for _ in range(int(drawer.rng.integers(1, 14))):
        now_s = round(now_s + drawer.number(0, HORIZON_S / 8), 3)
        node = int(drawer.rng.integers(nodes))
        name = f"n{node}"
        if node in down:
            events.append(NodeEvent(now_s, "up", name))
            down.remove(node)
        elif drawer.chance(0.2):
            events.append(NodeEvent(now_s, "notice", name, "", now_s + 120))
        elif drawer.chance(0.3):
            events.append(NodeEvent(now_s, "degraded", name, factor=drawer.one_of([1.0, 1.3, 2.0])))
        else:
            events.append(NodeEvent(now_s, "down", name))
            down.add(node)
    for node in sorted(down):
        if drawer.chance(0.6):
            now_s = round(now_s + drawer.number(0, HORIZON_S / 4), 3)
            events.append(NodeEvent(now_s, "up", f"n{node}"))
    return Trace(
        name="events",
        kind="node-events",
        format="random",
        origin="synthetic",
        tables={"node-events": events_table(events)},
        source="drawn",
        licence="none",
    )

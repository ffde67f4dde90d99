"""Small scenarios drawn at random, of all kinds of workloads and with all shipped policies.

They need no data: jobs, profiles, losses and signals are drawn, too. What is drawn depends on the
seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.registry import policies
from wattkeeper.scenarios.bench.baselines import SHIPPED, ModelsTrace
from wattkeeper.scenarios.bench.traces import generate_trace
from wattkeeper.traces.node_events import NodeEvent, events_table
from wattkeeper.traces.schema import jobs_table
from wattkeeper.traces.trace import Trace

GPU: Final = "SYN-250W"
OTHER_GPU: Final = "SYN-400W"
SYNTHETIC: Final = ("image", "language", "recommendation")
"""GPU types and workloads of the synthetic profiles."""

REAL_GPUS: Final = ("A100-SXM4", "V100-PCIE")
"""GPU types with a model of power limits."""

MOST_JOBS: Final = 24
HORIZON_S: Final = 30_000.0

BY_DURATION: Final = {"max-power", "fixed-power", "power-fraction", "chase", "deadline",
                      "static-limit"}  # fmt: skip
"""`Tune` policies that limit jobs without a profile, or leave them alone."""

PIPELINED: Final = ("fixed-clock", "max-power", "perseus", "pipeline-exact")
RETRAINED: Final = ("max-power", "zeus-jit", "chase", "deadline", "static-limit", "power-fraction",
                    "oracle", "fixed-power")  # fmt: skip
WITHOUT_RECORDS: Final = {"recorded"}
"""`Select` policies that need recorded starts."""


class RandomScenario(NamedTuple):
    """A scenario and the traces that it names.

    Attributes:
        kind: What it is about.
        document: The scenario, as its YAML file has it.
        traces: By name.
    """

    kind: str
    document: dict[str, Any]
    traces: Mapping[str, Trace]


def draw_scenario(seed: int) -> RandomScenario:
    """Draw a scenario."""
    rng = np.random.default_rng([seed, 0x1A45])
    kinds = list(KINDS)
    kind = kinds[int(rng.integers(len(kinds)))]
    drawer = _Drawer(rng)
    KINDS[kind](drawer)
    document = {"name": f"random-{seed}", **drawer.document, "baseline": "a", "seeds": 1}
    return RandomScenario(kind, document, drawer.traces)


class _Drawer:
    """Draws the sections of a scenario; each answer depends on those before it."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.document: dict[str, Any] = {}
        self.traces: dict[str, Trace] = {}

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, values: Sequence[Any]) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def number(self, low: float, high: float) -> float:
        """A number with few digits, so that times coincide at times."""
        return round(float(self.rng.uniform(low, high)), int(self.rng.integers(0, 4)))

    def draw_trace(self) -> None:
        """Jobs of a trace that run for their recorded durations, on one GPU type or two."""
        types = [GPU] if self.chance(0.5) else list(REAL_GPUS[: int(self.rng.integers(1, 3))])
        self._cluster(types)
        self._jobs(types, workloads=())
        self._policies(BY_DURATION, configures=("fixed",))

    def draw_profiled_trace(self) -> None:
        """Jobs of a trace, some of them with a profile."""
        self._cluster([GPU])
        self._jobs([GPU], workloads=SYNTHETIC)
        self.document["workload"]["profiles"] = {"synthetic": {}}
        if self.chance(0.3):
            self.document["occupancy"] = "recorded"
            self._occupy_at_once()
        self._policies(set(RETRAINED), configures=("fixed", "zeus", "grid-search", "oracle"))

    def draw_recurring(self) -> None:
        """Jobs that recur."""
        self._cluster([GPU])
        names = list(SYNTHETIC[: int(self.rng.integers(1, 4))])
        workload: dict[str, Any] = {
            "kind": "recurring", "profiles": {"synthetic": {}}, "workloads": names,
            "recurrences": int(self.rng.integers(2, 8)),
        }  # fmt: skip
        if self.chance(0.5):
            workload["every_s"] = self.number(50, 5000)
        if self.chance(0.4):
            workload["epochs"] = int(self.rng.integers(2, 30))
        if self.chance(0.4):
            workload["slack"] = self.number(0, 2)
        if self.chance(0.2) and "epochs" not in workload:
            workload["drift"] = {"after": 2, "per_octave": self.number(-0.5, 0.5)}
        self.document["workload"] = workload
        if self.chance(0.3):
            self.document["latencies"] = {
                "start_s": self.number(0, 60), "stop_s": self.number(0, 20),
                "report_s": self.number(0, 2), "settle_s": self.number(0, 10),
            }  # fmt: skip
        known = set(policies("configure")) - PARENTS
        self._policies(set(RETRAINED), configures=sorted(known))

    def draw_pipeline(self) -> None:
        """Pipeline-parallel jobs whose clocks change, with stragglers elsewhere."""
        self.document["cluster"] = {
            "gpu": "SYN-300W", "gpus": 8, "gpus_per_node": 4, "idle_power_w": self.number(0, 60)
        }  # fmt: skip
        self._facility(caps=False)
        jobs = [{"name": f"p{n}", "submit_s": self.number(0, 500)}
                for n in range(int(self.rng.integers(1, 4)))]  # fmt: skip
        workload: dict[str, Any] = {
            "kind": "pipeline", "profile": {"synthetic": {}},
            "microbatches": int(self.rng.integers(2, 6)),
            "iterations": int(self.rng.integers(20, 300)), "blocking_power_w": 75, "jobs": jobs,
        }  # fmt: skip
        if self.chance(0.6):
            workload["stragglers"] = {
                "mean_gap_s": self.number(50, 500), "mean_length_s": self.number(50, 500),
                "mean_excess": self.number(1, 8) / 10,
            }  # fmt: skip
        self.document["workload"] = workload
        self._policies(set(PIPELINED), configures=("fixed",))

    def draw_elastic(self) -> None:
        """Elastic jobs, alone or beside others."""
        nodes, per_node = int(self.rng.integers(2, 11)), int(self.one_of([1, 2, 4]))
        self.document["cluster"] = {
            "gpu": GPU, "gpus": nodes * per_node, "gpus_per_node": per_node,
            "idle_power_w": self.number(0, 60), "busy_power_w": 250,
        }  # fmt: skip
        self._facility(nodes=nodes, follow=False, sleeps=False)
        elastic, until_s = [], self.number(3000, HORIZON_S)
        rates: dict[str, dict[int, float]] = {}
        for number in range(int(self.rng.integers(1, 4))):
            least = int(self.rng.integers(1, nodes + 1))
            most = int(self.rng.integers(least, nodes + 1))
            model = f"m{number}"
            rate = 1.0
            rates[model] = {}
            checkpoint_s = self.number(0, 60)
            for held in range(1, nodes + 1):
                rate += self.number(0, 2)
                rates[model][held] = 0 if self.chance(0.1) and held > least else round(rate, 3)
            elastic.append({
                "name": f"e{number}", "model": model, "submit_s": self.number(0, 1000),
                "batch": int(self.one_of([1, 64, 512])), "least_nodes": least,
                "most_nodes": most, "checkpoint_s": checkpoint_s,
                "restart_s": 2 * checkpoint_s + self.number(0, 300),
                "reconfigure_s": self.number(0, 60),
            })  # fmt: skip
            if self.chance(0.4):
                elastic[-1]["samples"] = int(self.rng.integers(100, 30_000))
        workload: dict[str, Any] = {"kind": "elastic", "rates": rates, "jobs": elastic,
                                    "until_s": until_s}  # fmt: skip
        if self.chance(0.5):
            table = self._job_columns([GPU], (), most_gpus=nodes * per_node)
            self._add_jobs(table)
            workload["others"] = {"trace": "jobs", "unusable": "drop"}
        else:
            self._drop_unheeded()
        self.document["workload"] = workload
        self._policies({"max-power"}, configures=("fixed",), replan=True)

    def draw_zoo(self) -> None:
        """Models that start from the weights of others, in a bounded zoo."""
        self.document["cluster"] = {
            "gpu": "V100", "gpus": int(self.one_of([2, 4, 8])), "gpus_per_node": 2,
            "idle_power_w": 50, "busy_power_w": 250,
        }  # fmt: skip
        self._facility(caps=False)
        made = ModelsTrace(
            kind="models",
            models=int(self.rng.integers(3, 15)),
            seed=int(self.rng.integers(1, 50)),
            every_s=self.number(10, 3000),
        )
        self.traces["jobs"] = generate_trace(made, SHIPPED.parent)
        self.document["workload"] = {
            "kind": "trace", "trace": "jobs",
            "durations": {"base_s": self.number(0, 2000), "s_per_million_parameters": 600},
        }  # fmt: skip
        self.document["zoo"] = {"accuracy": 0.9}
        if self.chance(0.5):
            self.document["zoo"]["capacity_gb"] = self.one_of([0.00001, 0.0001, 0.001])
        self._policies({"max-power"}, configures=sorted(PARENTS), retain=True)

    def _cluster(self, types: Sequence[str]) -> None:
        """Nodes of some GPU types."""
        per_node = int(self.one_of([1, 2, 4, 8]))
        idle_w = {name: self.one_of([0.0, 20.0, 40.0, self.number(0, 60)]) for name in types}
        if len(types) == 1 and self.chance(0.5):
            nodes = int(self.rng.integers(1, 6))
            self.document["cluster"] = {
                "gpu": types[0], "gpus": nodes * per_node, "gpus_per_node": per_node,
                "idle_power_w": idle_w[types[0]], "busy_power_w": self.number(100, 250),
                "gpu_model": REAL_GPUS[0],
            }  # fmt: skip
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
                "power": {name: {"idle_w": watts, "busy_w": self.number(100, 250),
                                 "model": REAL_GPUS[0]}
                          for name, watts in idle_w.items()},
            }  # fmt: skip
        self._facility(nodes=nodes)

    def _facility(
        self, *, nodes: int = 2, caps: bool = True, follow: bool = True, sleeps: bool = True
    ) -> None:
        """Losses, a power cap, sleep and the cost of preemptions."""
        cluster = self.document["cluster"]
        if self.chance(0.3):
            cluster["pue"] = self.number(1, 2)
        if self.chance(0.4):
            cluster["preemption"] = {"checkpoint_s": self.number(0, 60),
                                     "restore_s": self.number(0, 60)}  # fmt: skip
        if sleeps and self.chance(0.25):
            cluster["sleep"] = {"after_s": self.number(0, 2000), "power_w": 0,
                                "wake_s": self.number(0, 100)}  # fmt: skip
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
                self._signal(
                    "cap",
                    {
                        "series": {"steps": [*steps, [steps[-1][0] + HORIZON_S, high_w]]},
                        "unit": "W",
                    },
                )
                cluster["power_cap_w"] = {"signal": "cap",
                                          "obey": self.one_of(["preempt", "limits"])}  # fmt: skip
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
                losses["events"]["degraded"] = {"rate": self.number(100, 20_000),
                                                "factor": [1.1, 3]}  # fmt: skip
        else:
            self.traces["events"] = _events_trace(self, nodes)
            losses["events"] = "events"
        if self.chance(0.6):
            losses["checkpoint"] = {
                "every_s": self.one_of(["young", "daly", self.number(10, 3000)]),
                "write_s": self.number(0, 10), "read_s": self.number(0, 30),
                "blocking": self.chance(0.7), "on_notice": self.chance(0.4),
            }  # fmt: skip
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

    def _drop_unheeded(self) -> None:
        """Leave out what has no effect where all jobs are elastic."""
        cluster = self.document["cluster"]
        cluster.pop("preemption", None)
        for key in ("requeue", "checkpoint"):
            cluster.get("losses", {}).pop(key, None)

    def _signal(self, name: str, signal: dict[str, Any]) -> None:
        self.document.setdefault("signals", {})[name] = signal

    def _job_columns(
        self, types: Sequence[str], workloads: Sequence[str], most_gpus: int = 8
    ) -> dict[str, list[Any]]:
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

    def _jobs(self, types: Sequence[str], workloads: Sequence[str]) -> None:
        self._add_jobs(self._job_columns(types, workloads))
        self.document["workload"] = {"kind": "trace", "trace": "jobs", "unusable": "drop"}
        if self.chance(0.3):
            self.document["workload"]["slack"] = self.number(0, 2)
        if workloads and self.chance(0.3):
            self.document["workload"]["epochs"] = int(self.rng.integers(2, 20))

    def _add_jobs(self, columns: Mapping[str, Any]) -> None:
        self.traces["jobs"] = Trace(
            name="jobs", kind="jobs", format="random", origin="synthetic",
            tables={"jobs": jobs_table(columns)}, source="drawn", licence="none",
        )  # fmt: skip

    def _occupy_at_once(self) -> None:
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

    def _policies(
        self,
        tunes: set[str] | Sequence[str],
        configures: Sequence[str],
        *,
        replan: bool = False,
        retain: bool = False,
    ) -> None:
        """Two variants with policies of their own."""
        self.document["objective"] = {"eta": self.one_of([0, 0.5, 1])}
        selects = sorted(set(policies("select")) - WITHOUT_RECORDS)
        for name in ("a", "b"):
            chosen: dict[str, Any] = {
                "select": self._setting("select", selects),
                "place": self._setting("place", sorted(policies("place"))),
                "tune": self._setting("tune", sorted(tunes)),
                "configure": self._setting("configure", configures),
            }  # fmt: skip
            if self.document.get("occupancy") == "recorded":
                chosen["tune"] = self.one_of(
                    ["max-power", {"kind": "fixed-power", "power_limit_w": 150.0}, "zeus-jit"]
                )
                chosen["select"] = "fifo"
            if replan:
                chosen["replan"] = self._setting("replan", sorted(policies("replan")))
            if retain and "capacity_gb" in self.document["zoo"]:
                chosen["retain"] = self._setting("retain", sorted(policies("retain")))
            self.document.setdefault("variants", {})[name] = {"policies": chosen}

    def _setting(self, point: Any, kinds: Sequence[str]) -> dict[str, Any]:
        """A policy with the settings that it needs."""
        kind = self.one_of(kinds)
        config = policies(point)[kind]
        stated: dict[str, Any] = {"kind": kind}
        if "carbon" in config.model_construct(kind=kind).signals:
            wave = {"mean": 300, "amplitude": 200, "period_s": 7200, "slots": 24}
            forecast = self.one_of(["perfect", "persistence"])
            self._signal("carbon", {"series": wave, "unit": "g/kWh", "forecast": forecast})
        for field, draw in SETTINGS.get(kind, {}).items():
            stated[field] = draw(self)
        return stated


PARENTS: Final = {"lineage", "modelkeeper", "none", "random-parent"}
"""`Configure` policies that choose a parent."""

SETTINGS: Final[dict[str, dict[str, Callable[[_Drawer], Any]]]] = {
    "fixed-power": {"power_limit_w": lambda d: float(d.one_of([100, 150, 200]))},
    "power-fraction": {"fraction": lambda d: d.one_of([0.5, 0.7, 1.0])},
    "fixed-clock": {"clock_mhz": lambda d: "lowest"},
    "chase": {"eta": lambda d: d.one_of([0.1, 0.5, 0.9]), "time_rate": lambda d: 420},
    "deadline": {"pauses": lambda d: d.chance(0.5)},
    "easy-backfill": {"estimates": lambda d: "perfect"},
    "steady": {"then": lambda d: d.one_of(["best-fit", "first-fit"])},
}
"""What is drawn of the settings of policies."""

KINDS: Final[dict[str, Callable[[_Drawer], None]]] = {
    "trace": _Drawer.draw_trace,
    "profiled trace": _Drawer.draw_profiled_trace,
    "recurring": _Drawer.draw_recurring,
    "pipeline": _Drawer.draw_pipeline,
    "elastic": _Drawer.draw_elastic,
    "zoo": _Drawer.draw_zoo,
}
"""What draws scenarios of each kind."""


def _events_trace(drawer: _Drawer, nodes: int) -> Trace:
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
        name="events", kind="node-events", format="random", origin="synthetic",
        tables={"node-events": events_table(events)}, source="drawn", licence="none",
    )  # fmt: skip

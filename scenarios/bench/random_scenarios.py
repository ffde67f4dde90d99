"""Small scenarios drawn at random, of all kinds of workloads and with all shipped policies.

They need no data: jobs, profiles, losses and signals are drawn, too. What is drawn depends on the
seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.registry import PolicyConfig, policies
from wattkeeper.scenarios.bench.baselines import SHIPPED, ModelsTrace
from wattkeeper.scenarios.bench.random_sections import GPU, HORIZON_S, REAL_GPUS, SectionDrawer
from wattkeeper.scenarios.bench.traces import generate_trace
from wattkeeper.traces.trace import Trace

SYNTHETIC: Final = ("image", "language", "recommendation")
"""Workloads of the synthetic profiles."""

BY_DURATION: Final = {
    "max-power",
    "fixed-power",
    "power-fraction",
    "chase",
    "deadline",
    "static-limit",
}
"""`Tune` policies that limit jobs without a profile, or leave them alone."""

PIPELINED: Final = ("fixed-clock", "max-power", "perseus", "pipeline-exact")
RETRAINED: Final = (
    "max-power",
    "zeus-jit",
    "chase",
    "deadline",
    "static-limit",
    "power-fraction",
    "oracle",
    "fixed-power",
)
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


class _Drawer(SectionDrawer):
    """Draws scenarios by kind of workload."""

    def draw_trace(self) -> None:
        """Jobs of a trace that run for their recorded durations, on one GPU type or two."""
        types = [GPU] if self.chance(0.5) else list(REAL_GPUS[: int(self.rng.integers(1, 3))])
        self.cluster(types)
        self._jobs(types, workloads=())
        self._policies(BY_DURATION, configures=("fixed",), has_durations=True)

    def draw_profiled_trace(self) -> None:
        """Jobs of a trace, some of them with a profile."""
        self.cluster([GPU])
        self._jobs([GPU], workloads=SYNTHETIC)
        self.document["workload"]["profiles"] = {"synthetic": {}}
        if self.chance(0.3):
            self.document["occupancy"] = "recorded"
            self.occupy_at_once()
        configures = ("fixed", "zeus", "grid-search", "oracle")
        self._policies(set(RETRAINED), configures, has_durations=True)

    def draw_recurring(self) -> None:
        """Jobs that recur."""
        self.cluster([GPU])
        names = list(SYNTHETIC[: int(self.rng.integers(1, 4))])
        workload: dict[str, Any] = {
            "kind": "recurring",
            "profiles": {"synthetic": {}},
            "workloads": names,
            "recurrences": int(self.rng.integers(2, 8)),
        }
        if self.chance(0.5):
            workload["every_s"] = self.number(50, 5000)
        if self.chance(0.4):
            workload["epochs"] = int(self.rng.integers(2, 30))
        if self.chance(0.4):
            workload["slack"] = self.number(0, 2)
        if self.chance(0.2) and "epochs" not in workload:
            workload["drift"] = {"after": 1, "per_octave": self.number(-0.5, 0.5)}
        self.document["workload"] = workload
        if self.chance(0.3):
            self.document["latencies"] = {
                "start_s": self.number(0, 60),
                "stop_s": self.number(0, 20),
                "report_s": self.number(0, 2),
                "settle_s": self.number(0, 10),
            }
        known = set(policies("configure")) - PARENTS
        self._policies(set(RETRAINED), configures=sorted(known))

    def draw_pipeline(self) -> None:
        """Pipeline-parallel jobs whose clocks change, with stragglers elsewhere."""
        self.document["cluster"] = {
            "gpu": "SYN-300W",
            "gpus": 8,
            "gpus_per_node": 4,
            "idle_power_w": self.number(0, 60),
        }
        self.facility(caps=False)
        jobs = [
            {"name": f"p{n}", "submit_s": self.number(0, 500)}
            for n in range(int(self.rng.integers(1, 4)))
        ]
        workload: dict[str, Any] = {
            "kind": "pipeline",
            "profile": {"synthetic": {}},
            "microbatches": int(self.rng.integers(2, 6)),
            "iterations": int(self.rng.integers(20, 300)),
            "blocking_power_w": 75,
            "jobs": jobs,
        }
        if self.chance(0.6):
            workload["stragglers"] = {
                "mean_gap_s": self.number(50, 500),
                "mean_length_s": self.number(50, 500),
                "mean_excess": self.number(1, 8) / 10,
            }
        self.document["workload"] = workload
        self._policies(set(PIPELINED), configures=("fixed",), eta=1.0)

    def draw_elastic(self) -> None:
        """Elastic jobs, alone or beside others."""
        nodes, per_node = int(self.rng.integers(2, 11)), int(self.one_of([1, 2, 4]))
        self.document["cluster"] = {
            "gpu": GPU,
            "gpus": nodes * per_node,
            "gpus_per_node": per_node,
            "idle_power_w": self.number(0, 60),
            "busy_power_w": 250,
        }
        self.facility(nodes=nodes, follow=False, sleeps=False)
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
            elastic.append(
                {
                    "name": f"e{number}",
                    "model": model,
                    "submit_s": self.number(0, 1000),
                    "batch": int(self.one_of([1, 64, 512])),
                    "least_nodes": least,
                    "most_nodes": most,
                    "checkpoint_s": checkpoint_s,
                    "restart_s": 2 * checkpoint_s + self.number(0, 300),
                    "reconfigure_s": self.number(0, 60),
                }
            )
            if self.chance(0.4):
                elastic[-1]["samples"] = int(self.rng.integers(100, 30_000))
        workload: dict[str, Any] = {
            "kind": "elastic",
            "rates": rates,
            "jobs": elastic,
            "until_s": until_s,
        }
        if self.chance(0.5):
            table = self.job_columns([GPU], (), most_gpus=nodes * per_node)
            self.add_jobs(table)
            workload["others"] = {"trace": "jobs", "unusable": "drop"}
        else:
            self.drop_unheeded()
        self.document["workload"] = workload
        has_others = "others" in workload
        self._policies({"max-power"}, ("fixed",), has_places=has_others, replan=True)

    def draw_zoo(self) -> None:
        """Models that start from the weights of others, in a bounded zoo."""
        nodes = int(self.one_of([1, 2, 4]))
        self.document["cluster"] = {
            "gpu": "V100",
            "gpus": 2 * nodes,
            "gpus_per_node": 2,
            "idle_power_w": 50,
            "busy_power_w": 250,
        }
        self.facility(nodes=nodes, caps=False)
        made = ModelsTrace(
            kind="models",
            models=int(self.rng.integers(3, 15)),
            seed=int(self.rng.integers(1, 50)),
            every_s=self.number(10, 3000),
        )
        self.traces["jobs"] = generate_trace(made, SHIPPED.parent)
        self.document["workload"] = {
            "kind": "trace",
            "trace": "jobs",
            "durations": {"base_s": self.number(0, 2000), "s_per_million_parameters": 600},
        }
        self.document["zoo"] = {"accuracy": 0.9}
        if self.chance(0.5):
            self.document["zoo"]["capacity_gb"] = self.one_of([0.00001, 0.0001, 0.001])
        self._policies({"max-power"}, configures=sorted(PARENTS), retain=True)

    def _jobs(self, types: Sequence[str], workloads: Sequence[str]) -> None:
        self.add_jobs(self.job_columns(types, workloads))
        self.document["workload"] = {"kind": "trace", "trace": "jobs", "unusable": "drop"}
        if self.chance(0.3):
            self.document["workload"]["slack"] = self.number(0, 2)
        if workloads and self.chance(0.3):
            self.document["workload"]["epochs"] = int(self.rng.integers(2, 20))

    def _policies(
        self,
        tunes: set[str] | Sequence[str],
        configures: Sequence[str],
        *,
        has_durations: bool = False,
        has_places: bool = True,
        eta: float | None = None,
        replan: bool = False,
        retain: bool = False,
    ) -> None:
        """Two variants with policies of their own."""
        self.document["objective"] = {"eta": self.one_of([0, 0.5, 1]) if eta is None else eta}
        selects = [
            kind
            for kind, config in policies("select").items()
            if kind not in WITHOUT_RECORDS and (has_durations or not _needs(config, kind))
        ]
        kinds = sorted(policies("place").items())
        places = [kind for kind, config in kinds if not config.chooses_types]
        for name in ("a", "b"):
            chosen: dict[str, Any] = {
                "select": self._setting("select", selects),
                "place": self._setting("place", places),
                "tune": self._setting("tune", sorted(tunes)),
                "configure": self._setting("configure", configures),
            }
            configure = policies("configure")[chosen["configure"]["kind"]]
            if configure.sets_power or configure.tunes:
                del chosen["tune"]
            if not has_places:
                del chosen["place"]
            if self.document.get("occupancy") == "recorded" and "tune" in chosen:
                chosen["tune"] = self.one_of(
                    ["max-power", {"kind": "fixed-power", "power_limit_w": 150.0}, "zeus-jit"]
                )
            if self.document.get("occupancy") == "recorded":
                chosen["select"] = "fifo"
            if replan:
                chosen["replan"] = self._setting("replan", sorted(policies("replan")))
            if retain and "capacity_gb" in self.document["zoo"]:
                chosen["retain"] = self._setting("retain", sorted(policies("retain")))
            self.document.setdefault("variants", {})[name] = {"policies": chosen}
            for point, policy in chosen.items():
                self._declare_signals(point, policy)

    def _declare_signals(self, point: Any, policy: Any) -> None:
        """Add the signals that a policy reads."""
        kind = policy if isinstance(policy, str) else policy["kind"]
        if "carbon" in policies(point)[kind].model_construct(kind=kind).signals:
            wave = {"mean": 300, "amplitude": 200, "period_s": 7200, "slots": 24}
            forecast = self.one_of(["perfect", "persistence"])
            self.signal("carbon", {"series": wave, "unit": "g/kWh", "forecast": forecast})

    def _setting(self, point: Any, kinds: Sequence[str]) -> dict[str, Any]:
        """A policy with the settings that it needs."""
        kind = self.one_of(kinds)
        stated: dict[str, Any] = {"kind": kind}
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
    "bamboo": {"depth": lambda d: 2},
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


def _needs(config: type[PolicyConfig], kind: str) -> bool:
    """Whether a policy needs columns that only jobs of a trace have."""
    return bool(config.model_construct(kind=kind).needed_columns)

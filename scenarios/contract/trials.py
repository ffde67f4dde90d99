"""Small scenarios in which a policy is simulated and rehearsed live."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from wattkeeper.live.controller.backend import LIVE
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.json_types import Json
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.run.run import ScenarioResult, run
from wattkeeper.scenarios.spec.loading import LoadedScenario, check
from wattkeeper.scenarios.spec.policy_files import PolicyFile
from wattkeeper.scenarios.spec.yaml_document import YamlDocument
from wattkeeper.sim.replay.backend import options_of
from wattkeeper.sim.results.folder import work_folder

RECURRING: Final[Json] = {
    "name": "trial",
    "cluster": {"gpu": "SYN-250W", "gpus": 4, "gpus_per_node": 2, "idle_power_w": 40},
    "workload": {
        "kind": "recurring",
        "profiles": {"synthetic": {}},
        "workloads": ["image", "recommendation"],
        "recurrences": 3,
        "every_s": 400,
    },
    "live": {"speed": 1e7, "lease_s": 60},
}
"""Two workloads, whose jobs wait for each other now and then."""

ELASTIC: Final[Json] = {
    "name": "trial",
    "cluster": {
        "gpu": "A100",
        "gpus": 48,
        "gpus_per_node": 8,
        "idle_power_w": 60,
        "busy_power_w": 350,
        "losses": {
            "events": {"rate": 2000, "shape": 0.7, "away_s": 3600, "away_sigma": 0.5},
            "boot_s": 60,
        },
    },
    "workload": {
        "kind": "elastic",
        "rates": {"gpt": {"4": 6.0, "5": 7.4, "6": 8.7}},
        "jobs": [
            {
                "name": "gpt",
                "model": "gpt",
                "batch": 64,
                "least_nodes": 4,
                "most_nodes": 6,
                "checkpoint_s": 60,
                "restart_s": 200,
                "reconfigure_s": 15,
            }
        ],
        "until_s": 200_000,
    },
}
"""A job on 4 to 6 nodes, one of which goes down every few hours."""

SIGNAL: Final[Json] = {
    "series": {"mean": 300, "amplitude": 100, "period_s": 7200, "slots": 12},
    "forecast": "persistence",
}
"""What each signal that a policy reads is like."""


def describe_trial(config: PolicyConfig, files: Sequence[PolicyFile]) -> Json:
    """The scenario in which a policy is tried."""
    content = dict(ELASTIC if config.point == "replan" else RECURRING)
    if config.point == "retain" or config.sets_parent:
        content["workload"] = content["workload"] | {"models": "mutations"}
        content["zoo"] = {"accuracy": 0.9, "capacity_gb": 4e-5}
    if config.signals:
        content["signals"] = dict.fromkeys(config.signals, SIGNAL)
    chosen = config.model_dump(mode="json")
    content["policy_files"] = [file.name for file in files]
    policies: Json = {config.point: chosen}
    if config.point == "retain":
        policies["configure"] = {"kind": "random-parent"}  # which uses what is stored
    content["variants"] = {"trial": {"policies": policies}}
    return content | {"baseline": "trial"}


def why_not_simulated(config: PolicyConfig) -> str:
    """Why the trial does not suit a policy; empty: it does."""
    if config.sets_clocks != "none":
        return "it chooses clocks, for which the trial has no jobs"
    if config.needed_columns:
        return f"it needs columns of a trace ({', '.join(config.needed_columns)})"
    return ""


def why_not_live(config: PolicyConfig) -> str:
    """Why a policy cannot be rehearsed live in the trial; empty: it can."""
    if config.point == "replan":
        return "elastic jobs are simulated only"
    unmet = LIVE.list_unmet(config)
    return f"it needs {', '.join(unmet)}, which a live run does not have" if unmet else ""


def load_trial(config: PolicyConfig, files: Sequence[PolicyFile]) -> LoadedScenario:
    """The checked scenario of a trial; the policy is that of the files."""
    document = YamlDocument("", "trial")
    document.data = describe_trial(config, files)
    document.policy_files = tuple(files)
    return check(document)


def why_refused(config: PolicyConfig, loaded: LoadedScenario) -> str:
    """Why a config refuses the options of a trial; empty: it does not."""
    (inputs,) = read_inputs(loaded).runs.values()
    try:
        for profile in inputs.profiles.values():
            config.check(options_of(profile))
    except PolicyError as error:
        return f"its `check` refuses the trial: {error}"
    return ""


def rehearse_live(loaded: LoadedScenario) -> ScenarioResult:
    """Rehearse a trial in a live run: the same processes and messages as with real trainings."""
    with tempfile.TemporaryDirectory(prefix="wattkeeper-trial-") as folder:
        return run(loaded, live=work_folder(Path(folder) / "trial", "live"))


def read_journal(result: ScenarioResult) -> list[tuple[Any, ...]]:
    """What was decided, job by job, without times and bounds of costs."""
    columns = ("seed", "job_id", "attempt", "point", "chose")
    rows = zip(*(result.table("decisions")[name].to_pylist() for name in columns), strict=True)
    return sorted((*keys, chose.partition(" cost_bound=")[0]) for *keys, chose in rows)

"""`frugal` weighs the time that other jobs wait."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.live.session.policy_host import config_of
from wattkeeper.policies.configure.frugal import FrugalConfig
from wattkeeper.policies.errors import PolicyError

PLAIN, WEIGHED = "plain", "weighed"


def run(inside: Command, folder: Path, workloads: list[str]) -> dict[str, pd.DataFrame]:
    """Rows of attempts by variant; workloads recur on one GPU, each with one job at a time."""
    content = {
        "name": "waiting",
        "cluster": {"gpu": "SYN-250W", "gpus": 1, "gpus_per_node": 1, "idle_power_w": 40},
        "workload": {
            "kind": "recurring",
            "profiles": {"synthetic": {}},
            "recurrences": 25,
            "workloads": workloads,
        },
        "objective": {"eta": 0.8},
        "variants": {
            PLAIN: {"policies": {"configure": "frugal"}},
            WEIGHED: {"policies": {"configure": {"kind": "frugal", "waiting": 3}}},
        },
        "baseline": PLAIN,
    }
    path = folder / "waiting.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    inside("run", path, "--out", "out")
    jobs = pd.read_parquet(folder / "out" / "jobs.parquet")
    return {
        str(name): rows.drop(columns="variant").reset_index(drop=True)
        for name, rows in jobs.groupby("variant")
    }


def test_time_counts_more_where_jobs_wait(inside: Command, tmp_path: Path) -> None:
    alone = run(inside, tmp_path, ["image"])
    pd.testing.assert_frame_equal(alone[PLAIN], alone[WEIGHED])
    queue = run(inside, tmp_path, ["image", "language", "recommendation"])
    assert queue[WEIGHED]["time_s"].sum() < 0.99 * queue[PLAIN]["time_s"].sum()
    assert queue[WEIGHED]["energy_j"].sum() > queue[PLAIN]["energy_j"].sum()
    assert queue[WEIGHED]["power_limit_w"].mean() > queue[PLAIN]["power_limit_w"].mean()


def test_waiting_has_no_weight_where_time_has_none(inside: Command) -> None:
    settings = (
        "--set",
        "objective.eta=1",
        "--set",
        "variants.zeus.policies.tune=null",
        "--set",
        "variants.zeus.policies.configure={kind: frugal, waiting: 1}",
    )
    done = inside("validate", "quickstart", *settings, code=2)
    assert_states(done.stderr, "time has no weight (objective.eta 1)")


def test_sessions_know_of_no_queue() -> None:
    with pytest.raises(PolicyError) as refused:
        config_of("configure", FrugalConfig(waiting=1.0))
    assert_states(str(refused.value), "the queue", "a session")

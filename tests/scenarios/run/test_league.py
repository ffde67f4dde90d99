"""Leagues of bandits: regrets by pair, on the terminal, on pages and in the summary."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.profile import Objective, Profile, expectations
from wattkeeper.traces.generate.synthetic import generate
from wattkeeper.traces.generate.synthetic_specs import SyntheticProfiles
from wattkeeper.traces.profiles import load_profiles

GPU = "SYN-250W"
RECURRENCES = 24
SHORT: dict[str, Any] = {
    "sweep": None,
    "cluster.gpu": GPU,
    "workload.profiles": {"synthetic": {}},
    "workload.recurrences": RECURRENCES,
}


def settings(**changes: Any) -> list[str]:
    pairs = (SHORT | changes).items()
    return [part for key, value in pairs for part in ("--set", f"{key}={json.dumps(value)}")]


def test_regrets_are_those_of_the_jobs(inside: Command, tmp_path: Path) -> None:
    shown = inside("run", "bandit-league", *settings(), "--seeds", "3", "--out", "out").stdout
    league = json.loads((tmp_path / "out" / "summary.json").read_text())["league"]
    profiles: dict[str, Profile] = dict(
        load_profiles(generate(SyntheticProfiles(), "synthetic"), GPU).profiles
    )
    assert {pair["workload"] for pair in league["pairs"]} == set(profiles)
    jobs = pd.read_parquet(tmp_path / "out" / "jobs.parquet")
    columns = ["variant", "seed", "workload", "recurrence"]
    costs = jobs.groupby(columns)["cost"].sum().unstack("recurrence")
    for pair in league["pairs"]:
        profile = profiles[pair["workload"]]
        expected = {
            (c.batch_size, c.power_limit_w): c.cost for c in expectations(profile, Objective(0.5))
        }
        least = min(expected.values())
        of_pair = costs.xs(pair["workload"], level="workload")
        oracle = of_pair.loc["oracle"].to_numpy()
        for name, about in pair["variants"].items():
            regret = (of_pair.loc[name].to_numpy() - oracle) / least
            assert about["regret"] == pytest.approx(regret.sum(axis=1).mean())
            assert about["horizons"] == {
                str(n): pytest.approx(regret[:, :n].sum(axis=1).mean()) for n in (10, 20)
            }
            paid, usual = (of_pair.loc[each].to_numpy().sum(axis=1) for each in (name, "default"))
            excess = paid / usual - 1
            assert about["excess"] == pytest.approx(excess.mean())
            bound = excess.mean() - 2.92 * excess.std(ddof=1) / math.sqrt(3)
            assert about["worse"] == (bound > 0)
            own = jobs[(jobs["variant"] == name) & (jobs["workload"] == pair["workload"])]
            last = own[(own["attempt"] == 1) & (own["recurrence"] > RECURRENCES - 5)]
            near = [
                expected.get((row.batch_size, row.power_limit_w), math.inf) <= 1.02 * least
                for row in last.itertuples()
            ]
            assert about["near"] == pytest.approx(np.mean(near))
        assert pair["variants"]["oracle"]["regret"] == 0
        assert pair["variants"]["oracle"]["near"] == 1
    regrets = [
        [max(pair["variants"][name]["regret"], 0.1) for name in ("frugal", "zeus")]
        for pair in league["pairs"]
    ]
    ratios = [own / other for own, other in regrets]
    assert f"{np.exp(np.mean(np.log(ratios))):.2f}" in shown
    assert "Regret over that of zeus" in shown
    assert 'id="league"' in (tmp_path / "out" / "report.html").read_text()


def test_a_sweep_has_a_table_of_all_points(inside: Command, tmp_path: Path) -> None:
    """GPU types make pairs, the other axes conditions."""
    content = yaml.safe_load(inside("scenarios", "bandit-league").stdout)
    variants = {name: content["variants"][name] for name in ("default", "zeus", "frugal", "oracle")}
    axes = {
        "cluster.gpu": [GPU, "SYN-400W"],
        "objective.eta": [0, 0.5],
        "workload.drift": [None, {"after": 5, "per_octave": 0.3}],
    }
    content["workload"] |= {"profiles": {"synthetic": {}}, "recurrences": 12}
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(content | {"variants": variants, "sweep": axes, "seeds": 1}))
    shown = inside("run", path, "--out", "out").stdout
    page = (tmp_path / "out" / "report.html").read_text()
    for condition in ("eta 0 (6 pairs)", "eta 0.5, drift after 5 per_octave 0.3 (6 pairs)"):
        assert condition in page
    assert "the first recurrences alone" in page
    assert "10 (24 pairs)" in page
    assert "pairs above default" in page
    assert "times the regret of zeus" in page
    assert_states(shown, "Regret over that of zeus", "eta 0 (6 pairs)", "pairs above default")


def test_the_oracle_is_near_the_optimum_while_epochs_drift(inside: Command, tmp_path: Path) -> None:
    drift = {"after": 2, "per_octave": 1.5, "over": 60}
    changes = {"workload.drift": drift, "workload.recurrences": 8}
    inside("run", "bandit-league", *settings(**changes), "--seeds", "1", "--out", "out")
    league = json.loads((tmp_path / "out" / "summary.json").read_text())["league"]
    for pair in league["pairs"]:
        assert pair["variants"]["oracle"]["near"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"league.against": "nobody"}, "no variant 'nobody'"),
        ({"league.oracle": "nobody"}, "no variant 'nobody'"),
        ({"league.oracle": "frugal"}, "'frugal' is no bound"),
        ({"league.oracle": "default"}, "'default' is no bound"),
        ({"league.against": "oracle"}, "'oracle' is no bound"),
        ({"cluster.losses": {"events": {"rate": 5}}}, "lost nodes"),
        ({"variants.zeus.objective": {"eta": 0.1}}, "the variants of a league have the same one"),
    ],
)
def test_bad_leagues_are_refused(inside: Command, changes: dict[str, Any], message: str) -> None:
    done = inside("validate", "bandit-league", *settings(**changes), code=2)
    assert_states(done.stderr, message)

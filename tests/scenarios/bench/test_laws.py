"""Random scenarios of all kinds keep the laws of conservation; faults in the sources break them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.examples import examples
from tests.support.messages import assert_states
from tests.support.source_copies import SourceCopy
from wattkeeper.policies.registry import policies
from wattkeeper.scenarios.bench import laws
from wattkeeper.scenarios.bench.random_scenarios import KINDS, draw_scenario

RUN: int = examples(600)


def test_random_scenarios_keep_the_laws() -> None:
    results = laws.check_random_scenarios(RUN)
    assert not results.broken
    assert results.refused.total() <= 0.2 * RUN, results.refused


@pytest.mark.parametrize("seed", [206, 218])
def test_owners_whose_jobs_paused_bear_no_negative_share(seed: int, tmp_path: Path) -> None:
    assert laws.run_checked(draw_scenario(seed), tmp_path / "drawn") > 0


def test_all_kinds_and_policies_are_drawn() -> None:
    drawn = [draw_scenario(seed) for seed in range(1, 400)]
    assert {each.kind for each in drawn} == set(KINDS)
    named = {
        point: Counter[str]()
        for point in ("configure", "select", "place", "tune", "replan", "retain")
    }
    for each in drawn:
        for variant in each.document["variants"].values():
            for point, policy in variant["policies"].items():
                named[point][policy["kind"] if isinstance(policy, dict) else policy] += 1
    # One needs starts that somebody recorded, one a workload with profiles on two GPU types.
    undrawn = {"recorded", "energy-aware"}
    for point, kinds in named.items():
        assert set(policies(point)) - undrawn <= set(kinds)


def test_a_seed_draws_one_scenario() -> None:
    one, other = draw_scenario(7), draw_scenario(7)
    assert one.document == other.document
    assert draw_scenario(8).document != one.document


def test_the_command_counts_runs(inside: Command) -> None:
    done = inside("bench", "laws", "--random", "4")
    assert_states(done.stdout, "Laws of conservation", "4 random scenarios")
    said = json.loads(inside("bench", "laws", "--random", "2", "--json").stdout)
    assert said["laws"]["broken"] == {}
    refused = inside("bench", "growth", "--random", "2", code=2)
    assert_states(refused.stderr, "--random", "laws")


PLANTS = {
    "power is booked apart from its attempt": (
        "sim/engine/booking.py",
        "        if attempt.power:\n            self._set_power(attempt, 0, now_s)",
        "        pass",
    ),
    "what is lost is counted at the last power": (
        "sim/replay/replayed.py",
        "lost_j = math.fsum([span.energy_j for span in spans])",
        "lost_j = self.checkpoints.unsaved_s * self.power_w",
    ),
    "steps under way count as useful": (
        "sim/cluster_results/node_use.py",
        "useful_s, redundant_s, lost_s, open_s, pause_s",
        "useful_s + open_s, redundant_s, lost_s, open_s, pause_s",
    ),
    "decisions name the attempt before": (
        "sim/engine/features/retuner.py",
        "tuning.start = tuning.start._replace(attempt=execution.attempt.number)",
        "pass",
    ),
}
"""Places in the sources, and what faults make of them."""


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_planted_faults_are_caught(tmp_path: Path, plant: str) -> None:
    copy = SourceCopy(tmp_path)
    with copy.changed(*PLANTS[plant]):
        done = copy.python("-m", "wattkeeper.scenarios", "bench", "laws", "--random", "200")
    assert done.returncode == 1, done.stdout + done.stderr
    assert_states(done.stdout, "breaks a law")


def test_a_run_can_be_checked(inside: Command) -> None:
    done = inside("run", "quickstart", "--seeds", "1", "--check", "--out", "out")
    assert_states(done.stderr, "Laws of conservation: 4 runs kept them.")
    live = inside("run", "quickstart", "--check", "--live", code=2)
    assert_states(live.stderr, "--check", "--live")

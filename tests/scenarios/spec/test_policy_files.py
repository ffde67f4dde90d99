"""Files of policies: found, executed where they are needed, and noticed when they change."""

from __future__ import annotations

import json
import pickle
import warnings
from hashlib import sha256
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.errors import WattkeeperError
from wattkeeper.policies.registry import policies
from wattkeeper.scenarios.spec.loading import load

POLICY = '''\
"""A power limit that is a share of the highest."""

from typing import ClassVar, Literal

from wattkeeper.policies.points.views import Knobs
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.registry import Point, PolicyConfig


class Share(Tune):
    def __init__(self, config):
        self.share = config.share

    def tune(self, ctx, running):
        limits = running.start.options.limits(running.configuration.batch_size)
        return Knobs(min(w for w in limits if w >= self.share * max(limits)))


class ShareConfig(PolicyConfig):
    """The lowest power limit that is at least a share of the highest one."""

    point: ClassVar[Point] = "tune"
    kind: Literal["share"] = "share"
    policy = Share
    share: float = 0.7
    """Of the highest limit."""
'''

SCENARIO = """\
name: shares
policy_files: [share.py]
cluster: {gpu: SYN-250W, gpus: 2, gpus_per_node: 1, idle_power_w: 40}
workload: {kind: recurring, profiles: {synthetic: {}}, workloads: [image], recurrences: 2}
live: {speed: 1.0e6}
variants:
  full: {}
  share: {policies: {tune: share}}
baseline: full
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the scenario and its file of policies."""
    place = tmp_path / "exp"
    place.mkdir()
    (place / "share.py").write_text(POLICY)
    (place / "shares.yaml").write_text(SCENARIO)
    return place


def test_worker_processes_execute_the_file(inside: Command, folder: Path, tmp_path: Path) -> None:
    inside("run", "exp/shares.yaml", "--out", "one")
    inside("run", "exp/shares.yaml", "--out", "two", "--workers", "2")
    for name in ("jobs.parquet", "decisions.parquet", "summary.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    summary = json.loads((tmp_path / "one/summary.json").read_text())
    energy = {
        name: about["metrics"]["energy_j"]["mean"] for name, about in summary["variants"].items()
    }
    assert energy["share"] < energy["full"]


def test_the_manifest_has_the_digest(inside: Command, folder: Path, tmp_path: Path) -> None:
    inside("run", "exp/shares.yaml", "--out", "out")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["scenario"]["policy_files"] == ["share.py"]
    (source,) = [source for source in manifest["inputs"] if source["kind"] == "policies"]
    assert source["sha256"] == {"share.py": sha256(POLICY.encode()).hexdigest()}


def test_a_flag_is_relative_to_the_working_directory(inside: Command, folder: Path) -> None:
    plain = SCENARIO.replace("policy_files: [share.py]\n", "")
    (folder / "plain.yaml").write_text(plain)
    inside("validate", "exp/plain.yaml", "--policy", "exp/share.py")
    refused = inside("validate", "exp/plain.yaml", "--policy", "share.py", code=2)
    assert_states(refused.stderr, "--policy share.py", "not a file")
    refused = inside("validate", "exp/plain.yaml", code=2)
    assert_states(refused.stderr, "plain.yaml:7:", "'share'", "max-power")


def test_a_file_that_is_named_twice_is_loaded_once(inside: Command, folder: Path) -> None:
    inside("validate", "exp/shares.yaml", "--policy", "exp/share.py")


@pytest.mark.parametrize(
    ("content", "code", "place", "words"),
    [
        ("x = 1\n\n\ny = 1 / 0\n", 1, "share.py:4", "ZeroDivisionError|correct it"),
        ("x = 1\nfor\n", 1, "share.py:2", "SyntaxError"),
        ("raise SystemExit(0)\n", 1, "share.py:1", "SystemExit"),
        ("x = 1\n", 2, "share.py:1", "registers no policy|PolicyConfig|kind"),
        (POLICY.partition("class ShareC")[0], 2, "share.py:10", "Share|Tune|PolicyConfig"),
        (POLICY.replace('"tune"', '"steer"'), 2, "share.py:19", "decision point"),
        (
            POLICY.replace('"share"', '"max-power"'),
            2,
            "share.py:19",
            "max-power|wattkeeper.policies.tune.max_power",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_message(
    inside: Command, folder: Path, content: str, code: int, place: str, words: str
) -> None:
    (folder / "share.py").write_text(content)
    refused = inside("validate", "exp/shares.yaml", code=code)
    assert_states(refused.stderr, f"exp/{place}: ", *words.split("|"))


def test_two_files_with_one_kind_are_refused(inside: Command, folder: Path) -> None:
    (folder / "other.py").write_text(f"# Another file.\n{POLICY}")
    refused = inside("validate", "exp/shares.yaml", "--policy", "exp/other.py", code=2)
    assert_states(refused.stderr, "exp/other.py:20: ", "'share'", "exp/share.py:19")


def test_files_that_are_absent_are_all_named(inside: Command, folder: Path) -> None:
    (folder / "shares.yaml").write_text(SCENARIO.replace("share.py", "a.py, b.py"))
    refused = inside("validate", "exp/shares.yaml", code=2)
    assert_states(refused.stderr, "shares.yaml:2:16", "a.py", "shares.yaml:2:22", "b.py")


def test_files_are_no_axis_of_a_sweep(inside: Command, folder: Path) -> None:
    refused = inside("run", "exp/shares.yaml", "--sweep", "policy_files=share.py", code=2)
    assert_states(refused.stderr, "policy_files", "policies.POINT")


def test_a_sweep_notices_a_changed_file(inside: Command, folder: Path) -> None:
    line = "        limits = running"
    (folder / "share.py").write_text(POLICY.replace(line, f"        1 / 0\n{line}"))
    sweep = ("run", "exp/shares.yaml", "--sweep", "objective.eta=0.5,1", "--out", "out")
    failed = inside(*sweep, code=1)
    assert_states(failed.stderr, "share", "ZeroDivisionError")
    again = inside(*sweep, code=1)
    assert_states(again.stderr, "Goes on with", "2 of 4 runs are done")
    (folder / "share.py").write_text(POLICY)
    done = inside(*sweep)
    assert_states(done.stderr, "exp/share.py:15: ", "changed", "begin anew")
    assert "Goes on with" not in done.stderr


def test_a_live_run_that_goes_on_notices_a_changed_file(inside: Command, folder: Path) -> None:
    live = ("run", "exp/shares.yaml", "--live", "--out", "out")
    broken = POLICY.replace("Knobs(", "Knobs(1 / 0 + ")
    (folder / "share.py").write_text(broken)
    inside(*live, code=1)
    (folder / "share.py").write_text(POLICY)
    refused = inside(*live, code=2)
    assert_states(refused.stderr, "exp/share.py:16: ", "unfinished run", "--out")
    (folder / "share.py").write_text(broken)
    inside(*live, code=1)


def test_a_changed_file_is_executed_again(folder: Path) -> None:
    def share() -> object:
        config = load(str(folder / "shares.yaml")).variants["share"].policies.tune
        return config.model_dump()["share"]

    assert share() == 0.7
    (folder / "share.py").write_text(POLICY.replace("= 0.7", "= 0.5"))
    assert share() == 0.5


def test_its_policies_are_those_of_the_scenario_alone(folder: Path) -> None:
    loaded = load(str(folder / "shares.yaml"))
    assert "share" in policies("tune")
    load("quickstart")
    assert "share" not in policies("tune")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        content = json.loads(loaded.scenario.model_dump_json(exclude_none=True))
    assert content["variants"]["share"]["policies"]["tune"] == {"kind": "share", "share": 0.7}


def test_a_config_survives_pickle(folder: Path) -> None:
    config = load(str(folder / "shares.yaml")).variants["share"].policies.tune
    copy = pickle.loads(pickle.dumps(config))
    assert type(copy) is type(config)
    assert copy == config


def test_one_of_several_faults_does_not_hide_the_scenario(folder: Path) -> None:
    (folder / "shares.yaml").write_text(SCENARIO.replace("[share.py]", "share.py"))
    with pytest.raises(WattkeeperError) as caught:
        load(str(folder / "shares.yaml"))
    assert_states(str(caught.value), "policy_files", "'share.py'", "a list")


def test_an_unknown_policy_is_told_where_own_ones_come_from(inside: Command, folder: Path) -> None:
    (folder / "shares.yaml").write_text(SCENARIO.replace("policy_files: [share.py]\n", ""))
    said = inside("validate", "exp/shares.yaml", code=2).stderr
    assert_states(said, "found 'share'", "'max-power'", "policy_files: [FILE.py]", "--policy")
    said = inside("validate", "quickstart", "--set", "workload.kind=mine", code=2).stderr
    assert_states(said, "found 'mine'", "'recurring'")
    assert "policy_files" not in said

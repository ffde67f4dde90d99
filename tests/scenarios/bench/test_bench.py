"""`wattkeeper bench` passes what is as it was, and catches regressions planted in the sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states, drop_signs_of_life
from tests.support.source_copies import SourceCopy
from wattkeeper.policies.registry import POINTS, policies
from wattkeeper.scenarios.bench.baselines import SHIPPED, read_baselines
from wattkeeper.scenarios.spec.loading import load, shipped

ENTRIES = [
    {
        "name": "recurring",
        "scenario": "quickstart",
        "seeds": 1,
        "settings": [
            "workload.workloads=[image]",
            "workload.recurrences=25",
            "variants={default: {}, zeus: {policies: {configure: zeus, tune: zeus-jit}}}",
        ],
    },
    {
        "name": "queue",
        "scenario": "philly-schedulers",
        "settings": ["cluster.gpus=16"],
        "trace": {"kind": "jobs", "jobs": 120, "load": 1.5, "gpus": 16},
    },
]
WHERE = """\
import wattkeeper.policies.scheduling.queueing as queueing
import wattkeeper.scenarios.bench.examine as examine
print(queueing.__file__, examine.__file__)
"""


class Copy(SourceCopy):
    """The sources of wattkeeper, to plant something in, with baselines."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.baselines = root / "baselines.json"
        self.baselines.write_text(json.dumps({"entries": ENTRIES}), encoding="utf-8")

    def bench(self, *arguments: str, code: int = 0) -> str:
        done = self.python(
            "-m", "wattkeeper.scenarios", "bench", "--baselines", str(self.baselines), *arguments
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert not drop_signs_of_life(done.stderr)
        return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy with a baseline of its own."""
    made = Copy(tmp_path_factory.mktemp("copy"))
    found = made.python("-c", WHERE).stdout.split()
    assert found == [
        str(made.root / f"wattkeeper/{at}")
        for at in ("policies/scheduling/queueing.py", "scenarios/bench/examine.py")
    ]
    said = made.bench("--update")
    assert_states(said, "Accepted: recurring: ", "2 runs", "Accepted: queue: ", "3 runs")
    return made


def test_unchanged_results_pass(copy: Copy) -> None:
    said = copy.bench()
    assert said.count("as before") == 3, said
    assert "What changed" not in said


TWICE = """

_once = run


def run(*arguments, **named):
    _once(*arguments, **named)
    return _once(*arguments, **named)
"""

PLANTS = {
    "a policy made 3 % worse": (
        "policies/tune/zeus_jit.py",
        "self._limits[key] = best.power_limit_w",
        "self._limits[key] = sorted((m.power_limit_w for m in running.measured), key=lambda w: "
        "abs(w - best.power_limit_w))[4]",
        {"recurring": {"digest", "cost"}},
    ),
    "a changed random stream": (
        "sim/kernel/streams.py",
        'f"run/{job.group_id}/',
        'f"runs/{job.group_id}/',
        {"recurring": {"digest", "energy_j"}},
    ),
    "a scheduler off by one job": (
        "policies/scheduling/queueing.py",
        "return job.duration_s",
        "return job.duration_s + (job.number == 60) * 1e9",
        {"queue": {"digest", "queue_delay_s"}},
    ),
    "a run twice as slow": ("scenarios/run/run.py", None, TWICE, {"queue": {"speed"}}),
    "a missing metric": (
        "sim/cluster_results/metrics.py",
        '        "p95_jct_s": p95_jct_s,\n',
        "",
        {"recurring": {"p95_jct_s"}},
    ),
}


ALIKE = ("a changed random stream", "a missing metric")
"""Plants that change the same entry as another one does."""


@pytest.mark.parametrize(
    "plant", [pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE)) for name in PLANTS]
)
def test_planted_regressions_are_caught(copy: Copy, plant: str) -> None:
    path, old, new, expected = PLANTS[plant]
    with copy.changed(path, old, new):
        found = json.loads(copy.bench("--json", *expected, code=1))
    changes = {
        entry["name"]: {change["quantity"]: change for change in entry["changes"]}
        for entry in found["entries"]
        if entry["changes"]
    }
    assert changes.keys() == expected.keys()
    for name, quantities in expected.items():
        assert quantities <= changes[name].keys()
    if "3 %" in plant:
        assert 0.02 < changes["recurring"]["cost"]["share"] < 0.04


HEADS = "        heads = [self._waiting[key][0] for key in self._untried]\n"
SCAN = """\
        for waiting in self._waiting.values():
            for _, _, run in waiting:
                capacity.fits(run.job)
"""


@pytest.mark.slow
def test_schedulers_that_ask_about_all_waiting_jobs_grow_too_fast(copy: Copy) -> None:
    file = copy.root / "wattkeeper/policies/scheduling/preempting.py"
    source = file.read_text(encoding="utf-8")
    assert source.count(HEADS) == 1
    file.write_text(source.replace(HEADS, SCAN + HEADS), encoding="utf-8")
    try:
        done = copy.python("-m", "wattkeeper.scenarios", "bench", "growth")
    finally:
        file.write_text(source, encoding="utf-8")
    assert done.returncode == 1, done.stderr
    rows = [line for line in done.stdout.splitlines() if "too fast" in line]
    assert len(rows) == 3, done.stdout
    assert_states("\n".join(rows), "srtf", "las", "gittins")


SMALL = {
    "name": "small",
    "scenario": "scheduler-pool",
    "settings": ["cluster.gpus=8"],
    "trace": {"kind": "jobs", "jobs": 40, "load": 0.9, "gpus": 8},
}


def save(folder: Path, *entries: Any) -> None:
    text = json.dumps({"entries": entries})
    (folder / "baselines.json").write_text(text, encoding="utf-8")


def read_json(folder: Path) -> Any:
    return json.loads((folder / "baselines.json").read_text(encoding="utf-8"))["entries"]


OWN = ("bench", "--baselines", "baselines.json")


def test_under_other_versions_metrics_decide(inside: Command, tmp_path: Path) -> None:
    save(tmp_path, SMALL)
    inside(*OWN, "--update")
    (entry,) = read_json(tmp_path)
    entry["expected"]["versions"]["numpy"] = "1.0"
    pool = entry["expected"]["variants"]["pool"]
    pool["digest"] = 64 * "0"
    pool["metrics"]["jct_s"] *= 1.005
    save(tmp_path, entry)
    said = inside(*OWN).stdout
    assert_states(said, "small: Digests differ", "numpy 1.0, ")
    pool["metrics"]["jct_s"] *= 1.03
    save(tmp_path, entry)
    found = json.loads(inside(*OWN, "--json", code=1).stdout)["entries"][0]
    assert [change["quantity"] for change in found["changes"]] == ["jct_s"]
    assert found["changes"][0]["share"] == pytest.approx(1 / 1.005 / 1.03 - 1)


def test_tolerances_apply_to_nondeterministic_results(inside: Command, tmp_path: Path) -> None:
    save(tmp_path, {**SMALL, "tolerances": {"jct_s": 0.1}})
    inside(*OWN, code=1)
    inside(*OWN, "--update")
    (entry,) = read_json(tmp_path)
    pool = entry["expected"]["variants"]["pool"]
    assert pool["digest"] is None
    assert pool["metrics"].keys() == {"jct_s"}
    pool["metrics"]["jct_s"] *= 1.08
    save(tmp_path, entry)
    before = (tmp_path / "baselines.json").read_bytes()
    inside(*OWN, "--update")
    assert (tmp_path / "baselines.json").read_bytes() == before, "there was nothing to accept"
    pool["metrics"]["jct_s"] *= 1.08
    save(tmp_path, entry)
    assert "-14.3 %" in inside(*OWN, code=1).stdout


def test_a_tolerance_of_no_metric_does_not_pass(inside: Command, tmp_path: Path) -> None:
    save(tmp_path, {**SMALL, "tolerances": {"jct_s": 0.1, "jtc_s": 0.1}})
    assert_states(inside(*OWN, "--update", code=1).stdout, "small", "no variant", "metric jtc_s")


def test_baselines_of_a_user_scenario(inside: Command, tmp_path: Path) -> None:
    mine = tmp_path / "sub" / "mine.yaml"
    mine.parent.mkdir()
    text = inside("scenarios", "quickstart").stdout
    mine.write_text(
        text.replace("name: quickstart", "name: mine")
        .replace("recurrences: 60", "recurrences: 2")
        .replace("seeds: 5", "seeds: 1"),
        encoding="utf-8",
    )
    ours = ("bench", "--baselines", "checks/baselines.json")
    assert_states(inside(*ours, code=2).stderr.lower(), "checks/baselines.json", "no such file")
    said = inside(*ours, "sub/mine.yaml", "--update").stdout
    assert_states(said, "Accepted: mine: ", "4 runs")
    file = tmp_path / "checks" / "baselines.json"
    (entry,) = json.loads(file.read_text(encoding="utf-8"))["entries"]
    assert entry["scenario"] == "../sub/mine.yaml"
    inside(*ours, "mine")
    assert_states(inside(*ours, "yours", code=2).stderr, "'yours'", "there is mine")
    mine.write_text(mine.read_text(encoding="utf-8").replace("gpus: 3", "gpu: 3"), encoding="utf-8")
    assert "mine.yaml:5:" in inside(*ours, code=1).stdout, "it fails, and the bench says where"


def test_entries_that_cannot_run_are_skipped(inside: Command, tmp_path: Path) -> None:
    said = inside("bench", "zeus-nsdi23", "philly-fifo", code=3).stdout
    assert_states(said, "zeus-nsdi23: trace 'zeus-nsdi23'", "library", "2 skipped")


def test_all_problems_of_the_file_are_reported(inside: Command, tmp_path: Path) -> None:
    save(
        tmp_path,
        {"name": "a", "scenario": "quickstart", "seed": 3},
        {"name": "b", "scenario": "quickstart", "live": True},
    )
    told = inside(*OWN, code=2).stderr
    assert_states(told, "entries.0.seed: Extra inputs", "entries.1: ", "live: ", "tolerances")


LEFT_OUT = {"live-smoke", "live-nightly", "million-jobs", "zeus-eta"}
"""Two train for minutes, one takes half a minute, and the last differs from zeus-nsdi23 by eta."""


def test_all_scenarios_and_policies_have_a_baseline() -> None:
    entries = read_baselines(SHIPPED).entries
    assert {entry.scenario for entry in entries} == shipped().keys() - LEFT_OUT
    made = [entry for entry in entries if not entry.name.startswith(("zeus-n", "zeus-o", "philly"))]
    chosen: dict[str, set[str]] = {point: set() for point in POINTS}
    for entry in made:
        for variant in load(entry.scenario, entry.settings).variants.values():
            for point, config in variant.policies.by_point.items():
                chosen[point].add(config.kind)
    for point in POINTS:
        assert set(policies(point)) - chosen[point] <= {"fixed-power", "power-fraction", "recorded"}
    for entry in entries:
        assert entry.expected is not None
        if entry.tolerances is None:
            assert entry.expected.cpu.keys() == {"compiled", "interpreted"}


@pytest.mark.slow
def test_shipped_baselines_are_reproduced(command: Command) -> None:
    """All that need no data, digests and speed."""
    found = json.loads(command("bench", "--json").stdout)
    assert found["ran"] >= 9, "they need no data"

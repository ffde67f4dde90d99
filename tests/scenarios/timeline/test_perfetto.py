"""Timelines for Perfetto: what they say is what the tables say, in the format as documented."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Command
from tests.sim.engine.test_power_cap_signal import capped, signal
from tests.support.examples import examples
from tests.support.live_runs import REHEARSED, run, scenario
from tests.support.messages import assert_states
from tests.support.results import seal
from tests.support.worlds import (
    Setting,
    by_job,
    chosen,
    run_world,
    settings_of_worlds,
    spec,
    steady,
    stub,
)
from wattkeeper import scenarios
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.points.job import WHOLE
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.scenarios.run.run import ScenarioResult
from wattkeeper.scenarios.timeline import perfetto
from wattkeeper.sim.cluster_results.tables import collect
from wattkeeper.sim.engine.world import World

Event = dict[str, Any]

PHASES = {"M", "X", "i", "C"}
"""Metadata, complete events, instants, counters: those of the format that are used."""

NAMES = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}


class Drawn(NamedTuple):
    """A trace: its events by phase, and what else it says."""

    events: dict[str, list[Event]]
    other: Event

    def check_format(self) -> None:
        """What the Trace Event Format asks of each phase."""
        assert set(self.events) <= PHASES
        named = {(e["pid"], e["tid"]) for e in self.events["M"] if e["name"] == "thread_name"}
        processes = {e["pid"] for e in self.events["M"] if e["name"] == "process_name"}
        assert len({tid for _, tid in named}) == len(named), "viewers look threads up by tid"
        for event in (one for some in self.events.values() for one in some):
            assert isinstance(event["name"], str)
            assert event["name"]
            assert 0 < event["pid"] < 1 << 31
            assert 0 < event["tid"] < 1 << 31
            assert event["pid"] in processes
        for event in self.events["M"]:
            assert event["name"] in NAMES
            kind = str if event["name"].endswith("_name") else int
            (value,) = event["args"].values()
            assert isinstance(value, kind)
        for event in (*self.events["X"], *self.events["i"], *self.events["C"]):
            assert ns(event["ts"]) >= 0
        for event in (*self.events["X"], *self.events["i"]):
            assert (event["pid"], event["tid"]) in named
        for event in self.events["X"]:
            assert ns(event["dur"]) >= 0
        for event in self.events["i"]:
            assert event["s"] == "t"
        for event in self.events["C"]:
            assert all(isinstance(value, int | Decimal) for value in event["args"].values())

    def gpu_seconds(self) -> float:
        """Of all slices, each of one GPU or a part of one."""
        parts: list[int] = [ns(e["dur"]) * e["args"]["gpu_milli"] for e in self.events["X"]]
        return sum(parts) / WHOLE / 1e9

    def check_lanes(self) -> None:
        """No two slices overlap on a lane."""
        lanes = defaultdict(list)
        for event in self.events["X"]:
            begin = ns(event["ts"])
            lanes[event["pid"], event["tid"]].append((begin, begin + ns(event["dur"])))
        for spans in lanes.values():
            spans.sort()
            for (_, end), (begin, _) in pairwise(spans):
                assert end <= begin

    def names(self) -> set[str]:
        """Of processes and threads."""
        return {e["args"]["name"] for e in self.events["M"] if e["name"].endswith("_name")}

    def gpus(self) -> Counter[int]:
        """How many lanes that stand for a GPU each node has."""
        of_node = {
            e["pid"]: e["args"]["name"] for e in self.events["M"] if e["name"] == "process_name"
        }
        return Counter(
            int(of_node[e["pid"]].split()[1])
            for e in self.events["M"]
            if e["name"] == "thread_name" and e["pid"] > 1 and "part" not in e["args"]["name"]
        )


def ns(us: int | Decimal) -> int:
    """A time of the trace, which has no more digits than that."""
    whole = us * 1000
    assert whole == int(whole)
    return int(whole)


def opened(path: Path) -> Drawn:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert raw.startswith(b'{"traceEvents":['), "viewers tell the format by it"
    found = json.loads(raw, parse_float=Decimal)
    assert found["displayTimeUnit"] in ("ms", "ns")
    events = defaultdict(list)
    for event in found["traceEvents"]:
        events[event["ph"]].append(event)
    return Drawn(events, found["otherData"])


def check(study: Study, variant: str, seed: int, path: Path) -> Drawn:
    """Write the timeline of a run, and hold it against the tables."""
    written = perfetto.write_trace(study, variant, seed, path)
    drawn = opened(path)
    drawn.check_format()
    drawn.check_lanes()
    jobs, decisions, line = (
        frame[(frame["variant"] == variant) & (frame["seed"] == seed)]
        for frame in (study.jobs, study.decisions, study.timeline)
    )
    lasts_s = np.diff(line["time_s"])
    held = float((line["gpus_busy"].to_numpy()[:-1] * lasts_s).sum())
    slices = drawn.events["X"]
    assert drawn.gpu_seconds() == pytest.approx(held, rel=1e-9, abs=1e-9 * len(slices))
    attempts = {(e["args"]["job"], e["args"]["attempt"]) for e in slices}
    assert attempts == set(zip(jobs["job_id"], jobs["attempt"], strict=True))
    assert written == (len(set(jobs["job_id"])), len(slices), len(decisions))
    instants = [
        (e["args"]["job"], e["args"]["attempt"], e["args"]["policy"], e["args"]["chose"])
        for e in drawn.events["i"]
    ]
    columns = (decisions[name] for name in ("job_id", "attempt", "policy", "chose"))
    assert instants == list(zip(*columns, strict=True))
    zero_s = drawn.other["time_zero_s"]
    times = [ns(e["ts"]) / 1e9 + float(zero_s) for e in drawn.events["i"]]
    np.testing.assert_allclose(times, decisions["time_s"], rtol=1e-12, atol=1e-9)
    preempted = sum(e["args"]["outcome"] == "preempted" for e in slices)
    assert (preempted > 0) == (decisions["chose"] == "preempt").any()
    ends = dict(
        zip(zip(jobs["job_id"], jobs["attempt"], strict=True), jobs["finish_time_s"], strict=True)
    )
    for event in slices:
        if event["args"]["outcome"] not in ("preempted", "paused"):
            end_s = ends[event["args"]["job"], event["args"]["attempt"]] - float(zero_s)
            assert ns(event["ts"]) + ns(event["dur"]) == pytest.approx(1e9 * end_s, abs=2)
    check_counters(drawn, line)
    return drawn


def check_counters(drawn: Drawn, line: Any) -> None:
    """Each has the values of the table, where they change."""
    for name, unit in perfetto.COUNTERS.items():
        values = line[name].to_numpy()
        seen = [float(e["args"][unit]) for e in drawn.events["C"] if e["name"] == name]
        changes = [value for at, value in enumerate(values) if not at or value != values[at - 1]]
        assert seen == ([] if line[name].isna().any() else changes)


def study_of(world: World, pauses: str = "free") -> ScenarioResult:
    result = collect("v", 1, world.recorder, world.source, world.cluster.spec, {}, 0)
    manifest = {"seeds": [1], "scenario": {"name": "random", "pauses": pauses}}
    return ScenarioResult([result], {"variants": {"v": {}}}, cast(Manifest, manifest), "")


@given(settings_of_worlds(), st.sampled_from(["t.json", "t.json.gz"]))
def test_timelines_of_random_worlds(
    tmp_path_factory: pytest.TempPathFactory, setting: Setting, name: str
) -> None:
    """With preemption, parts of GPUs, gangs over nodes, retries, power caps, and all policies."""
    world = setting.run()
    study = study_of(world)
    path = tmp_path_factory.mktemp("trace") / name
    drawn = check(study, "v", 1, path)
    for node, gpus in drawn.gpus().items():
        assert gpus <= world.cluster.spec.capacity[node], "never more lanes than GPUs"
    first = path.read_bytes()
    perfetto.write_trace(study, "v", 1, path)
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]


@settings(max_examples=examples(60))
@given(
    caps=st.lists(st.sampled_from([300.0, 420.0, 700.0]), min_size=1, max_size=8),
    values=st.lists(st.sampled_from([0.0, 100.0, 250.0]), min_size=1, max_size=12),
    obey=st.sampled_from(["preempt", "limits"]),
    holds=st.booleans(),
)
def test_timelines_of_jobs_that_a_cap_preempts_or_tune_pauses(
    tmp_path_factory: pytest.TempPathFactory,
    caps: list[float],
    values: list[float],
    obey: Any,
    holds: bool,
) -> None:
    def tune(ctx: Context, running: Running) -> Knobs:
        value = ctx.signal("s").value
        return Knobs(value or 100.0, run="go" if value else "pause")

    config = stub("tune", tune=tune, moments=(*START_MOMENTS, "signal"), signals=("s",))
    world = run_world(
        [job(str(n), n * 0.7) for n in range(4)],
        by_job(steady(5.0, 2.0)),
        capped(spec(1, 3), obey=obey),
        chosen(tune=config),
        holds_pauses=holds,
        signals={"cap": signal("cap", 3.0, [*caps, 700.0]), "s": signal("s", 2.0, [*values, 250])},
    )
    study = study_of(world, "hold" if holds else "free")
    drawn = check(study, "v", 1, tmp_path_factory.mktemp("trace") / "t.json")
    outcomes = {event["args"]["outcome"] for event in drawn.events["X"]}
    retunes = dict(zip(study.jobs["job_id"], study.jobs["retunes"], strict=True))
    for args in (event["args"] for event in drawn.events["X"]):
        named = {"power_limit_w", "last_power_limit_w"} & args.keys()
        assert named == {"last_" * (retunes[args["job"]] > 0) + "power_limit_w"}
    chose = study.decisions["chose"]
    assert "paused" not in outcomes or (not holds and chose.str.contains("run=pause").any())


PREEMPTING = """\
name: preempting
cluster: {gpu: GPU, gpus: 8, gpus_per_node: 4, idle_power_w: 50, busy_power_w: 250}
workload: {kind: trace, trace: jobs}
variants:
  fifo: {policies: {select: fifo}}
  dlas: {policies: {select: dlas-gpu}}
baseline: fifo
"""


@pytest.fixture
def preempting(inside: Command, tmp_path: Path) -> Path:
    """Results of jobs whose ids need care in JSON, preempted in one variant."""
    rows = [f'"j{n} ""é""",{10 * n},{1000 + 3700 * n % 40000},{1 + n % 6}' for n in range(60)]
    (tmp_path / "jobs.csv").write_text("\n".join(["job_id,submit_time_s,duration_s,gpus", *rows]))
    inside("traces", "import", "csv", "jobs.csv", "--name", "jobs")
    (tmp_path / "preempting.yaml").write_text(PREEMPTING)
    inside("run", "preempting.yaml", "--out", "out", "--seeds", "2")
    return tmp_path / "out"


def test_the_command_writes_the_timeline_of_a_run(inside: Command, preempting: Path) -> None:
    said = inside("timeline", preempting).stdout
    assert "fifo, seed 1: 60 jobs" in said
    assert "ui.perfetto.dev" in said
    fifo = opened(preempting / "timeline.json.gz")
    assert (fifo.other["variant"], fifo.other["seed"]) == ("fifo", 1)
    inside("timeline", preempting, "--variant", "dlas", "--seed", "2", "--out", "dlas.json")
    drawn = check(scenarios.read(preempting), "dlas", 2, preempting.parent / "again.json")
    assert (preempting.parent / "dlas.json").read_bytes() == (
        preempting.parent / "again.json"
    ).read_bytes()
    assert any(e["args"]["outcome"] == "preempted" for e in drawn.events["X"])
    assert {e["name"] for e in drawn.events["i"]} >= {"start", "preempt", "place"}
    assert drawn.names() >= {"node 0 (GPU)", "GPU 3", "select"}
    inside("run", "preempting.yaml", "--out", "out")
    assert not (preempting / "timeline.json.gz").exists(), "it was of the older results"


def test_runs_without_a_timeline_are_refused(
    inside: Command, preempting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = inside("timeline", preempting, "--variant", "none", code=2).stderr
    assert_states(message, "fifo, dlas", "seeds: 1, 2", "variant none", "seed any")
    assert_states(inside("timeline", "nowhere", code=2).stderr, "nowhere: ", "no folder")
    message = inside("timeline", preempting, "--out", "a/b.json", code=2).stderr
    assert_states(message, "a", "no folder")
    study = scenarios.read(preempting)
    path = preempting.parent / "t.json"
    for limit, text in (("MOST_JOBS", "60 jobs.* 10"), ("MOST_SLICES", "more than 10 slices")):
        with monkeypatch.context() as patch:
            patch.setattr(perfetto, limit, 10)
            with pytest.raises(InputError, match=text):
                perfetto.write_trace(study, "fifo", 1, path)
    inside("traces", "generate", "jobs", "--name", "few", "--jobs", "20")
    inside(
        "run",
        "preempting.yaml",
        "--out",
        "few",
        "--set",
        "workload.trace=few",
        "--set",
        "workload.unusable=drop",
    )
    (preempting.parent / "few/jobs.parquet").write_bytes((preempting / "jobs.parquet").read_bytes())
    seal(preempting.parent / "few")
    message = inside("timeline", "few", code=2).stderr
    assert_states(message, "jobs and decisions", "fifo", "seed 1", "'job1'")
    assert not list(preempting.parent.glob("few/*timeline.json*"))


def test_the_timeline_of_a_live_run(tmp_path: Path) -> None:
    run(scenario(tmp_path, REHEARSED, recurrences=2), "--out", "live", "--live", cwd=tmp_path)
    study = scenarios.read(tmp_path / "live")
    drawn = check(study, "zeus", study.manifest["seeds"][0], tmp_path / "t.json.gz")
    assert drawn.other["backend"] == "live"
    assert drawn.names() >= {"configure", "tune"}
    assert all(e["args"]["batch_size"] > 0 for e in drawn.events["X"])

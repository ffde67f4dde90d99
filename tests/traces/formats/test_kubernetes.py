"""Pods and Kueue workloads of Kubernetes: gangs, tries, parts of GPUs, faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import assert_states
from tests.support.traces import import_trace
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats import find_format

DATA = Path(__file__).parents[2] / "data" / "formats"
PODS, WORKLOADS = DATA / "kubernetes_pods.jsonl", DATA / "kubernetes_workloads.jsonl"


def jobs(*paths: Path) -> dict[str, dict[str, Any]]:
    trace = import_trace("kubernetes", paths)
    return {row.pop("job_id"): row for row in trace.tables["jobs"].to_pylist()}


def pods() -> list[Any]:
    return [json.loads(line) for line in PODS.read_text().splitlines()]


def write(path: Path, objects: list[Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return path


def test_pods_of_one_job_are_a_gang() -> None:
    row = jobs(PODS)["nlp/bert"]
    assert row == row | {
        "submit_time_s": 3600,
        "start_time_s": 7260,
        "duration_s": 7260,
        "gpus": 8,
        "tries": 1,
        "gpu_type": "NVIDIA-A100-SXM4-80GB",
        "user": "ada",
        "queue": "nlp",
        "account": "nlp",
        "qos": "high",
        "estimate_s": 86400,
        "status": "Succeeded",
    }


def test_a_pod_after_a_failed_one_is_another_try() -> None:
    row = jobs(PODS)["vision/retry"]
    wanted = {"submit_time_s": 0, "start_time_s": 2400, "duration_s": 3600, "gpus": 1, "tries": 2}
    assert row == row | wanted | {"status": "Succeeded", "user": None}


def test_parts_of_gpus_and_the_last_state() -> None:
    rows = jobs(PODS)
    assert set(rows) == {"nlp/bert", "vision/retry", "vision/part", "vision/open"}
    part, whole = rows["vision/part"], rows["vision/open"]
    assert (part["gpus"], part["gpu_milli"], part["user"], part["queue"]) == (1, 429, "bob", "lab")
    assert (whole["gpus"], whole["duration_s"], whole["status"]) == (2, 7200, "Succeeded")
    assert import_trace("kubernetes", [PODS]).quality["dropped"] == {
        "asks for no GPU": 1,
        "is a further pod of a job, counted in its first": 2,
        "is another state of an object that stands in the log already": 1,
        "never started": 1,
    }


def test_pods_may_stand_in_any_order_and_in_several_files(tmp_path: Path) -> None:
    lines = PODS.read_text().splitlines(keepends=True)
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text("".join(lines[7:3:-1]))
    second.write_text("".join(lines[3::-1] + lines[8:]).replace("\n", "\r\n"))
    split = jobs(first, second)
    whole = jobs(PODS)
    assert {name: row["gpus"] for name, row in split.items()} == {
        name: row["gpus"] for name, row in whole.items()
    }
    assert split["nlp/bert"]["duration_s"] == whole["nlp/bert"]["duration_s"]
    assert split["vision/open"]["duration_s"] == 7200


def test_workloads_of_kueue() -> None:
    assert find_format("auto", [WORKLOADS]).name == "kubernetes"
    rows = jobs(WORKLOADS)
    assert set(rows) == {"nlp/a", "nlp/b"}
    assert rows["nlp/a"] == rows["nlp/a"] | {
        "submit_time_s": 0,
        "start_time_s": 3660,
        "duration_s": 7140,
        "gpus": 8,
        "tries": 1,
        "gpu_type": "a100",
        "queue": "team",
        "account": "nlp",
        "qos": "high",
        "estimate_s": 7200,
        "status": "Succeeded",
    }
    second = rows["nlp/b"]
    assert (second["tries"], second["status"], second["duration_s"]) == (3, "Failed", 1800)


def test_pods_that_follow_each_other_are_not_added_up(tmp_path: Path) -> None:
    first, second = pods()[2:4]
    first["status"]["phase"] = "Succeeded"
    row = jobs(write(tmp_path / "x.jsonl", [first, second]))["vision/retry"]
    assert (row["gpus"], row["tries"], row["duration_s"]) == (1, 1, 95 * 60)


def test_jobs_of_one_name_are_told_apart_by_uid(tmp_path: Path) -> None:
    first, second = pods()[2:4]
    second["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = "j-9"
    rows = jobs(write(tmp_path / "x.jsonl", [first, second]))
    assert set(rows) == {"vision/retry/p3", "vision/retry/p4"}


def test_types_by_affinity(tmp_path: Path) -> None:
    pod = pods()[5]
    match = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["H100", "A100"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
    need = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    pod["spec"]["affinity"] = {"nodeAffinity": need}
    row = jobs(write(tmp_path / "x.jsonl", [pod]))["vision/open"]
    assert (row["gpu_type"], row["duration_s"]) == ("A100|H100", None)


def _set(*path: str | int, value: Any) -> Callable[[Any], None]:
    def change(pod: Any) -> None:
        for key in path[:-1]:
            pod = pod[key]
        pod[path[-1]] = value

    return change


LIMITS = ("spec", "containers", 0, "resources", "limits")


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (_set("kind", value="Job"), "kind is 'Job'|Pod or Workload"),
        (_set("kind", value="Workload"), "kind is Workload|began with a Pod"),
        (_set("metadata", value=[]), "metadata is []|object"),
        (_set("metadata", "uid", value=None), "metadata.uid is absent"),
        (_set("metadata", "name", value=3), "metadata.name is 3|text"),
        (_set("metadata", "creationTimestamp", value="today"), "'today'|2026-01-31T12:00:00Z"),
        (_set(*LIMITS, "nvidia.com/gpu", value="0.5"), "nvidia.com/gpu is '0.5'|whole number"),
        (_set(*LIMITS, "nvidia.com/gpu", value=True), "nvidia.com/gpu is True|whole number"),
        (_set("spec", "containers", value={}), "containers is {}|list"),
        (_set("status", "startTime", value="2026-01-05T12:00:00Z"), "3600 s before"),
    ],
)
def test_faults_name_file_line_and_value(
    tmp_path: Path, change: Callable[[Any], None], facts: str
) -> None:
    objects = pods()[:2]
    change(objects[1]) if "3600" not in facts else change(objects[0])
    line = 1 if "3600" in facts else 2
    path = write(tmp_path / "x.jsonl", objects)
    with pytest.raises(TraceError) as caught:
        import_trace("kubernetes", [path])
    assert_states(str(caught.value), f"x.jsonl, line {line}", *facts.split("|"))

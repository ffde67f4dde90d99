"""Pods of Kubernetes that form one job: by what groups them, when it starts, and whose it is."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kubernetes import at, condition, hours, import_objects, jobs, pod, write
from tests.support.messages import assert_states
from tests.support.traces import import_trace
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats import find_format
from wattkeeper.traces.formats.kubernetes.documents import read_objects
from wattkeeper.traces.library.importer import write_jobs
from wattkeeper.traces.readers import json_window
from wattkeeper.traces.readers.base import JobsFormat

LWS = "leaderworkerset.sigs.k8s.io/"
RAY = {"ray.io/cluster": "g-raycluster-x1", "ray.io/originated-from-cr-name": "g"}
GROUPS: dict[str, dict[str, Any]] = {
    "kueue": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}},
    "coscheduling": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
    "coscheduling-older": {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}},
    "coscheduling-oldest": {"labels": {"pod-group.scheduling.sigs.k8s.io/name": "g"}},
    "koordinator": {"annotations": {"gang.scheduling.koordinator.sh/name": "g"}},
    "ray-cluster": {"labels": {"ray.io/cluster": "g"}, "owner": ("RayCluster", "g", "o")},
    "ray-job": {"labels": RAY | {"ray.io/originated-from-crd": "RayJob"}},
    "leader-worker-set": {"labels": {LWS + "name": "l", LWS + "group-index": "0"}},
    "leader-worker-set-key": {"labels": {LWS + "name": "l", LWS + "group-key": "689ce1b5"}},
    "volcano-job": {"labels": {"volcano.sh/job-name": "g"}, "owner": ("Job", "g", "o")},
    "volcano": {"annotations": {"scheduling.k8s.io/group-name": "g"}},
    "volcano-own": {"annotations": {"scheduling.volcano.sh/group-name": "g"}},
    "kai": {"annotations": {"pod-group-name": "pg-g-1234"}},
    "yunikorn": {"labels": {"applicationId": "app-1"}},
    "yunikorn-annotation": {
        "annotations": {"yunikorn.apache.org/app-id": "app-1"}
        | {"yunikorn.apache.org/task-group-name": "workers"}
    },
    "skypilot": {"labels": {"skypilot-cluster-name": "c-1", "skypilot-user": "ann"}},
    "skypilot-older": {"labels": {"skypilot-cluster": "c-1"}},
    "jobset": {"labels": {"jobset.sigs.k8s.io/jobset-name": "g", "job-name": "g-workers-0"}},
    "kubeflow": {"labels": {"training.kubeflow.org/job-name": "g"}},
    "kubernetes": {"spec": {"schedulingGroup": {"podGroupName": "g"}}},
    "kubernetes-1.35": {"spec": {"workloadRef": {"name": "g", "podGroup": "workers"}}},
}
"""What marks a pod as one of a gang, by who does so."""


def four(group: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    spec = group.get("spec", {}) | {"nodeName": "n"}
    return [pod(f"p-{number}", **(group | {"spec": spec} | more)) for number in range(4)]


@pytest.mark.parametrize("kind", GROUPS)
def test_four_pods_of_one_gang_are_one_job(tmp_path: Path, kind: str) -> None:
    trace = import_objects(tmp_path / "x.jsonl", four(GROUPS[kind]))
    assert list(hours(trace).values()) == [(4, 0.0, 1.0, 3.0)]
    part = "is a further pod of a job, counted in its first"
    assert (trace.quality["rows"], trace.quality["dropped"]) == (4, {part: 3})


@pytest.mark.parametrize("kind", GROUPS)
def test_other_namespaces_and_groups_are_other_jobs(tmp_path: Path, kind: str) -> None:
    group = GROUPS[kind]
    text = json.dumps(group).replace('"g"', '"h"').replace('-1"', '-2"').replace("1234", "5678")
    other = json.loads(text.replace('"0"', '"1"').replace("689ce1b5", "b07").replace('"o"', '"q"'))
    if "owner" in other:
        other["owner"] = tuple(other["owner"])
    ours = four(group)
    elsewhere = [
        each | {"metadata": each["metadata"] | {"namespace": "cv"}} for each in four(group)
    ]
    theirs = four(other)
    for number, each in enumerate(elsewhere + theirs):
        each["metadata"]["uid"] = f"v-{number}"
    rows = hours(import_objects(tmp_path / "x.jsonl", [*ours, *elsewhere, *theirs]))
    assert [row[0] for row in rows.values()] == [4, 4, 4]


@pytest.mark.parametrize("labelled", [(0,), (1,), (0, 2), (1, 2, 3), ()])
@pytest.mark.parametrize("kind", ["kueue", "coscheduling", "kai", "kubeflow", "volcano"])
def test_pods_without_a_user_are_of_the_only_one(
    tmp_path: Path, kind: str, labelled: tuple[int, ...]
) -> None:
    pods = four(GROUPS[kind])
    pods[0]["spec"]["serviceAccountName"] = "trainer"
    for number in labelled:
        pods[number]["metadata"]["labels"]["user"] = "ann"
    trace = import_objects(tmp_path / "x.jsonl", pods)
    assert list(hours(trace).values()) == [(4, 0.0, 1.0, 3.0)]
    assert [row["user"] for row in jobs(trace).values()] == ["ann" if labelled else "trainer"]


def test_a_name_goes_from_a_user_to_another(tmp_path: Path) -> None:
    label = {"kueue.x-k8s.io/pod-group-name": "g"}
    pods = [
        pod(f"p-{user}-{number}", start, end, created=start, labels=label | user_label)
        for user, start, end in (("ann", "08:00", "09:00"), ("bob", "10:00", "12:00"))
        for number, user_label in enumerate(({"user": user}, {}))
    ]
    rows = jobs(import_objects(tmp_path / "x.jsonl", pods))
    assert [(row["user"], row["gpus"]) for row in rows.values()] == [("ann", 2), ("bob", 2)]


def test_users_of_one_group_name_have_a_job_each(tmp_path: Path) -> None:
    label = {"scheduling.x-k8s.io/pod-group": "train"}
    pods = [
        pod(f"{user}-{number}", labels=label | {"user": user}, gpus=2)
        for user in ("ann", "bob")
        for number in range(2)
    ]
    rows = jobs(import_objects(tmp_path / "x.jsonl", pods))
    assert [(row["user"], row["gpus"]) for row in rows.values()] == [("ann", 4), ("bob", 4)]
    assert set(rows) == {"ml/train/u-ann-0", "ml/train/u-bob-0"}


def test_groups_of_a_leader_worker_set_are_a_job_each(tmp_path: Path) -> None:
    pods = [
        pod(f"l-{group}-{worker}", labels={LWS + "name": "l", LWS + "group-index": str(group)})
        for group in range(2)
        for worker in range(3)
    ]
    assert {name: row[0] for name, row in hours(import_objects(tmp_path / "x", pods)).items()} == {
        "ml/l-0": 3,
        "ml/l-1": 3,
    }


def test_replicas_of_a_group_of_kubernetes_1_35_are_a_job_each(tmp_path: Path) -> None:
    pods = [
        pod(
            f"p-{number}",
            spec={
                "workloadRef": {"name": "w", "podGroup": "workers"}
                | {"podGroupReplicaKey": str(number % 2)}
            },
        )
        for number in range(4)
    ]
    rows = hours(import_objects(tmp_path / "x", pods))
    assert {name: row[0] for name, row in rows.items()} == {"ml/w-0": 2, "ml/w-1": 2}


def test_the_application_of_all_that_name_none_is_no_gang(tmp_path: Path) -> None:
    label = {"applicationId": "yunikorn-ml-autogen"}
    rows = hours(import_objects(tmp_path / "x", [pod(f"p-{n}", labels=label) for n in range(3)]))
    assert [row[0] for row in rows.values()] == [1, 1, 1]


def test_placeholders_of_yunikorn_hold_nothing(tmp_path: Path) -> None:
    label = {"applicationId": "app-1"}
    marks = {"yunikorn.apache.org/placeholder": "true"}
    pods = [pod("real", labels=label, created="08:00", start="09:00")]
    pods += [pod("tg-1", "08:10", "09:00", labels=label, annotations=marks, phase="Failed")]
    trace = import_objects(tmp_path / "x", pods)
    assert hours(trace) == {"ml/app-1": (1, 0.0, 1.0, 3.0)}
    assert trace.quality["dropped"] == {"only reserves GPUs for a pod of a gang": 1}


def test_a_job_of_a_controller_goes_before_the_group_of_its_scheduler(tmp_path: Path) -> None:
    """KAI gives each pod of a Job a group of its own."""
    pods = [
        pod(
            f"j-{number}",
            annotations={"pod-group-name": f"pg-j-{number}-uid"},
            labels={"batch.kubernetes.io/job-name": "j"},
            owner=("Job", "j", "o"),
        )
        for number in range(2)
    ]
    assert hours(import_objects(tmp_path / "x", pods)) == {"ml/j": (2, 0.0, 1.0, 3.0)}


def gang(*pods: dict[str, Any]) -> list[dict[str, Any]]:
    for each in pods:
        each["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
    return list(pods)


def test_a_gang_starts_when_all_its_pods_run(tmp_path: Path) -> None:
    pods = gang(pod("a", "09:00", "12:00"), pod("b", "10:00", "12:00"))
    assert hours(import_objects(tmp_path / "x", pods)) == {"ml/g": (2, 0.0, 2.0, 4.0)}


def test_pods_that_never_run_together_start_with_the_first(tmp_path: Path) -> None:
    pods = gang(pod("a", "09:00", "10:00"), pod("b", "10:00", "11:00"))
    assert hours(import_objects(tmp_path / "x", pods)) == {"ml/g": (1, 0.0, 1.0, 3.0)}


def test_a_pod_that_joins_later_does_not_move_the_start(tmp_path: Path) -> None:
    pods = gang(pod("a", "09:00", "12:00"), pod("b", "11:30", "12:00", created="11:00"))
    assert hours(import_objects(tmp_path / "x", pods)) == {"ml/g": (2, 0.0, 1.0, 4.0)}


def test_a_name_that_is_used_again_is_another_job(tmp_path: Path) -> None:
    pods = gang(
        pod("a", "09:00", "11:00", uid="1"),
        pod("b", "09:00", "11:00", uid="2"),
        pod("a", "12T09:00", "12T10:00", created="12T08:00", uid="3"),
        pod("b", "12T09:00", "12T10:00", created="12T08:00", uid="4"),
    )
    assert hours(import_objects(tmp_path / "x", pods)) == {
        "ml/g/1": (2, 0.0, 1.0, 3.0),
        "ml/g/3": (2, 48.0, 49.0, 50.0),
    }


def test_a_name_that_is_used_again_after_a_failure_is_another_job(tmp_path: Path) -> None:
    pods = gang(
        pod("a", "09:00", "11:00", uid="1", phase="Failed"),
        pod("a", "12T09:00", "12T10:00", created="12T08:00", uid="2"),
    )
    assert set(hours(import_objects(tmp_path / "x", pods))) == {"ml/g/1", "ml/g/2"}


def test_pods_that_vanished_while_they_ran_end_where_their_name_is_used_again(
    tmp_path: Path,
) -> None:
    pods = gang(
        pod("a", "09:00", None, uid="1"),
        pod("a", "12T09:00", "12T10:00", created="12T08:00", uid="2"),
    )
    assert hours(import_objects(tmp_path / "x", pods)) == {
        "ml/g/1": (1, 0.0, 1.0, 48.0),
        "ml/g/2": (1, 48.0, 49.0, 50.0),
    }


@pytest.mark.parametrize(
    "status",
    [
        {"reason": "Evicted"},
        {"conditions": [condition("DisruptionTarget", "10:00", "PreemptionByScheduler")]},
        {"conditions": [condition("TerminationTarget", "10:00", "WorkloadEvictedDueToPreempted")]},
    ],
)
def test_an_evicted_gang_that_is_queued_again_is_one_job(
    tmp_path: Path, status: dict[str, Any]
) -> None:
    pods = gang(
        pod("a", "09:00", "10:00", uid="1", phase="Failed", status=status),
        pod("b", "09:00", "10:00", uid="2", phase="Failed", status=status),
        pod("a", "13:00", "15:00", created="11:00", uid="3"),
        pod("b", "13:00", "15:00", created="11:00", uid="4"),
    )
    trace = import_objects(tmp_path / "x", pods)
    assert hours(trace) == {"ml/g": (2, 0.0, 5.0, 7.0)}
    assert jobs(trace)["ml/g"]["tries"] == 2


def test_a_name_that_is_used_again_after_a_job_that_survived_an_eviction_is_another_job(
    tmp_path: Path,
) -> None:
    pods = gang(
        pod("a", "09:00", "10:00", uid="1", phase="Failed", status={"reason": "Evicted"}),
        pod("a", "10:10", "12:00", created="10:05", uid="2"),
        pod("b", "09:00", "12:00", uid="3"),
        pod("a", "12T09:00", "12T10:00", created="12T08:00", uid="4"),
    )
    assert hours(import_objects(tmp_path / "x", pods)) == {
        "ml/g/1": (2, 0.0, 1.0, 4.0),
        "ml/g/4": (1, 48.0, 49.0, 50.0),
    }


def test_a_pod_of_its_own_that_is_evicted_is_a_job_and_its_name_may_be_another(
    tmp_path: Path,
) -> None:
    pods = [
        pod("nb-0", "09:00", "10:00", uid="1", phase="Failed", status={"reason": "Evicted"}),
        pod("nb-0", "13:00", "15:00", created="11:00", uid="2"),
    ]
    assert set(hours(import_objects(tmp_path / "x", pods))) == {"ml/nb-0/1", "ml/nb-0/2"}


def test_a_replaced_pod_does_not_count_twice(tmp_path: Path) -> None:
    """A worker that failed in a gang is created again while the others wait for it."""
    pods = gang(
        pod("a", "09:00", "12:00"),
        pod("b", "09:00", "10:00", uid="b1", phase="Failed"),
        pod("b", "10:05", "12:00", created="10:01", uid="b2"),
    )
    assert hours(import_objects(tmp_path / "x", pods)) == {"ml/g": (2, 0.0, 1.0, 4.0)}


def test_a_pod_that_waits_for_ever_is_no_part_of_what_ran(tmp_path: Path) -> None:
    pods = gang(
        pod("a", None, created="08:00"), pod("b", "12T09:00", "12T10:00", created="12T08:00")
    )
    trace = import_objects(tmp_path / "x", pods)
    assert hours(trace) == {"ml/g": (1, 0.0, 1.0, 2.0)}
    assert trace.quality["dropped"] == {"never started": 1}


def test_a_pod_that_is_put_into_a_group_later_counts_once(tmp_path: Path) -> None:
    before, after = pod("a", None, None), gang(pod("a"))[0]
    trace = import_objects(tmp_path / "x", [before, after])
    assert hours(trace) == {"ml/g": (1, 0.0, 1.0, 3.0)}


OBJECTS = [
    pod(f"p-{number}", spec={"schedulingGroup": {"podGroupName": "g"}}) for number in range(3)
]
LINES = [json.dumps(each) for each in OBJECTS]
BARE = [{key: each[key] for key in ("metadata", "spec", "status")} for each in OBJECTS]
DOCUMENTS = {
    "kubectl": json.dumps({"apiVersion": "v1", "items": OBJECTS, "kind": "List"}, indent=4),
    "compact": json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": OBJECTS}),
    "api": json.dumps(
        {"kind": "PodList", "apiVersion": "v1", "items": BARE}, separators=(",", ":")
    ),
    "array": json.dumps(OBJECTS, indent=2),
    "stream": "\n".join(json.dumps(each, indent=2) for each in OBJECTS),
    "lists": "\n".join(json.dumps({"items": [each], "kind": "List"}) for each in OBJECTS),
    "bom": "\ufeff" + json.dumps({"items": OBJECTS, "kind": "List"}, indent=2),
    "crlf": json.dumps({"items": OBJECTS, "kind": "List"}, indent=2).replace("\n", "\r\n"),
}


@pytest.mark.parametrize("form", DOCUMENTS)
def test_lists_give_the_same_as_one_object_a_line(tmp_path: Path, form: str) -> None:
    path = tmp_path / "pods.json"
    path.write_bytes(DOCUMENTS[form].encode())
    assert find_format("auto", [path]).name == "kubernetes"
    trace = import_trace("kubernetes", [path])
    lines = import_objects(tmp_path / "pods.jsonl", OBJECTS)
    assert trace.tables == lines.tables
    assert trace.quality == lines.quality


def test_a_list_of_workloads_and_an_empty_list(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"kind": "WorkloadList", "apiVersion": "kueue.x-k8s.io/v1beta2", "items": []}')
    assert find_format("auto", [path]).name == "kubernetes"
    with pytest.raises(TraceError) as caught:
        import_trace("kubernetes", [path])
    assert_states(str(caught.value), path, "has no rows")


@given(st.integers(1, 200), st.sampled_from(sorted(DOCUMENTS)))
def test_lists_are_read_whatever_the_parts_of_the_file(size: int, form: str) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.NamedTemporaryFile() as file:
        patch.setattr(json_window, "CHUNK_BYTES", size)
        file.write(DOCUMENTS[form].encode())
        file.flush()
        found = [record for _, record in read_objects(Path(file.name))]
    assert [each["metadata"]["name"] for each in found if isinstance(each, dict)] == [
        "p-0",
        "p-1",
        "p-2",
    ]
    assert len(found) == 3


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            '{\n "items": [\n  {"kind": "Job"}\n ],\n "kind": "List"\n}',
            "line 3|kind is 'Job'|Pod or",
        ),
        (
            '{\n "items": [\n  {"kind": "Pod",}\n ]\n}',
            "line 3|the object that starts here is broken",
        ),
        ('{\n "items": [\n  {"kind": "Pod"}\n', "line 4|ends too early|end of the file"),
        ('{\n "items": [\n  3\n ]\n}', "line 3|no object starts here|'3'"),
        ('[\n "a"\n]', "line 2|no object starts here"),
        ('{\n "kind": "Pod"\n} 3', "line 3|no object starts here|kubectl"),
        ('{\n "kind" "Pod"\n}', "line 2|goes on wrongly|':'"),
    ],
)
def test_damaged_lists_are_refused_with_their_line(tmp_path: Path, text: str, facts: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        import_trace("kubernetes", [path])
    assert_states(str(caught.value), path, *facts.split("|"))


def test_a_malformed_object_of_a_list_can_be_left_out(tmp_path: Path) -> None:
    bad = pod("bad") | {"metadata": []}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"items": [*OBJECTS, bad, bad], "kind": "List"}))
    form = find_format("kubernetes", [path])
    assert isinstance(form, JobsFormat)
    quality = write_jobs(form, [path], None, tmp_path / "out", skip_bad=True).fields["quality"]
    assert (quality["kept"], quality["wrong"], quality["rows"]) == (1, 2, 5)


def test_workloads_of_kubernetes_itself_are_told_from_those_of_kueue(tmp_path: Path) -> None:
    core = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload", "metadata": {}}
    with pytest.raises(TraceError) as caught:
        import_trace("kubernetes", [write(tmp_path / "x", [core])])
    assert_states(
        str(caught.value), "line 1", "scheduling.k8s.io/v1alpha2", "workloads.kueue.x-k8s.io"
    )
    assert at("09:00") == "2026-01-10T09:00:00Z"

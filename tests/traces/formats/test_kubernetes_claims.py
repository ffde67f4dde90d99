"""GPUs of Kubernetes that no container asks for by number: claims of devices, and fractions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import Json, admitted, hours, import_objects, jobs, pod, workload
from tests.support.messages import assert_states
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats.kubernetes import jobs as reasons
from wattkeeper.traces.formats.kubernetes.log import CLAIM

WHOLE = {"deviceClassName": "gpu.nvidia.com"}
NIC = {"deviceClassName": "dranet-ib"}
PROFILE = "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"
MIG = {"deviceClassName": "mig.nvidia.com", "selectors": [{"cel": {"expression": PROFILE}}]}


def claim(name: str, *requests: Json, results: tuple[Json, ...] = ()) -> Json:
    """A claim; the requests are named r0, r1, ..."""
    named = [{"name": f"r{number}", **request} for number, request in enumerate(requests)]
    state = {"allocation": {"devices": {"results": list(results)}}} if results else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ml", "uid": f"u-{name}"},
        "spec": {"devices": {"requests": named}},
        "status": state,
    }


def template(name: str, *requests: Json) -> Json:
    made = claim(name, *requests)
    return made | {"kind": "ResourceClaimTemplate", "spec": {"spec": made["spec"]}, "status": {}}


def exactly(device: Mapping[str, Any], **more: Any) -> Json:
    return {"exactly": {**device, **more}}


def result(device: str, request: str = "r0", driver: str = "gpu.nvidia.com", **more: Any) -> Json:
    return {"request": request, "driver": driver, "pool": "n1", "device": device, **more}


def claiming(
    name: str,
    *,
    gpus: int = 0,
    start: str = "09:00",
    end: str = "11:00",
    made: str = "",
    **claims: str,
) -> Json:
    """A pod with one claim: ``resourceClaimName`` or ``resourceClaimTemplateName``."""
    made_of = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": made}]} if made else {}
    spec = {"resourceClaims": [{"name": "c", **claims}]}
    return pod(name, start, end, gpus=gpus, spec=spec, status=made_of)


@pytest.mark.parametrize(
    ("requests", "wanted"),
    [
        ([exactly(WHOLE)], (1, 1000)),
        ([exactly(WHOLE, count=4)], (4, 1000)),
        ([WHOLE | {"count": 2}], (2, 1000)),  # before v1beta2
        ([exactly(WHOLE, count=2), exactly(NIC, count=2)], (2, 1000)),
        ([exactly(WHOLE), exactly({"deviceClassName": "vfio.gpu.nvidia.com"})], (2, 1000)),
        ([exactly({"deviceClassName": "gpu.amd.com"}, allocationMode="ExactCount")], (1, 1000)),
        ([exactly(MIG, count=2)], (2, 429)),
        ([{"firstAvailable": [{"name": "a", **WHOLE}, {"name": "b", **WHOLE}]}], (1, 1000)),
        ([exactly(WHOLE), exactly(WHOLE, adminAccess=True)], (1, 1000)),
    ],
)
def test_requests_of_templates_are_gpus(
    tmp_path: Path, requests: list[Json], wanted: tuple[int, int]
) -> None:
    objects = [claiming("p", resourceClaimTemplateName="t"), template("t", *requests)]
    trace = import_objects(tmp_path / "x", objects)
    (row,) = jobs(trace).values()
    assert (row["gpus"], row["gpu_milli"]) == wanted
    assert (trace.quality["dropped"], trace.quality["doubts"]) == ({CLAIM: 1}, {})


@pytest.mark.parametrize(
    ("requests", "results", "wanted"),
    [
        ([exactly(WHOLE, allocationMode="All")], [result("gpu-0"), result("gpu-1")], (2, 1000)),
        ([exactly({"deviceClassName": "h100"})], [result("gpu-0")], (1, 1000)),
        ([exactly({"deviceClassName": "h100"})], [result("gpu-0-mig-1g10gb-19-0")], (1, 143)),
        ([exactly(MIG)], [result("gpu-0-mig-9-4-4")], (1, 429)),
        (
            [{"firstAvailable": [{"name": "a", **MIG}, {"name": "b", **WHOLE}]}],
            [result("gpu-0", "r0/b")],
            (1, 1000),
        ),
        ([exactly(WHOLE)], [result("gpu-0"), result("gpu-1", adminAccess=True)], (1, 1000)),
        (
            [exactly(WHOLE), exactly(NIC)],
            [result("gpu-0"), result("mlx5", "r1", "dra.net")],
            (1, 1000),
        ),
    ],
)
def test_what_was_allocated_goes_before_what_was_asked_for(
    tmp_path: Path, requests: list[Json], results: list[Json], wanted: tuple[int, int]
) -> None:
    made = claim("p-c-x7", *requests, results=tuple(results))
    objects = [made, claiming("p", resourceClaimTemplateName="t", made="p-c-x7")]
    (row,) = jobs(import_objects(tmp_path / "x", objects)).values()
    assert (row["gpus"], row["gpu_milli"]) == wanted


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([], reasons.NO_CLAIM),
        ([template("t", exactly(NIC))], reasons.NO_CLASS),
        ([template("t", exactly(WHOLE, allocationMode="All"))], reasons.NO_COUNT),
        ([template("t", {"firstAvailable": [WHOLE, MIG]})], reasons.NO_COUNT),
        (
            [template("t", exactly({"deviceClassName": "mig.nvidia.com"}))],
            "shares GPUs in parts that are not recorded",
        ),
        ([template("other", exactly(WHOLE))], reasons.NO_CLAIM),
    ],
)
def test_claims_that_tell_no_number_of_gpus_are_named(
    tmp_path: Path, objects: list[Json], reason: str
) -> None:
    objects = [claiming("p", resourceClaimTemplateName="t"), *objects, pod("other")]
    trace = import_objects(tmp_path / "x", objects)
    assert list(jobs(trace)) == ["ml/other"]
    assert trace.quality["dropped"][reason] == 1


def test_a_pod_with_gpus_of_its_own_is_kept_without_its_claims(tmp_path: Path) -> None:
    """As one with a network card by claim."""
    objects = [claiming("p", gpus=8, resourceClaimTemplateName="t")]
    trace = import_objects(tmp_path / "x", objects)
    assert hours(trace) == {"ml/p": (8, 0.0, 1.0, 3.0)}
    assert trace.quality["doubts"] == {reasons.LEFT_OUT: 1}


def test_a_claim_that_pods_of_a_gang_share_counts_once(tmp_path: Path) -> None:
    pods = [claiming(f"p{number}", resourceClaimName="c") for number in range(2)]
    for each in pods:
        each["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
    trace = import_objects(tmp_path / "x", [*pods, claim("c", exactly(WHOLE, count=2))])
    assert hours(trace) == {"ml/g": (2, 0.0, 1.0, 3.0)}
    pods[1]["status"]["startTime"] = "2026-01-10T11:00:00Z"
    pods[1]["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = (
        "2026-01-10T12:00:00Z"
    )
    trace = import_objects(tmp_path / "x", [*pods, claim("c", exactly(WHOLE, count=2))])
    assert hours(trace) == {"ml/g": (2, 0.0, 1.0, 4.0)}


def test_a_claim_that_jobs_share_is_a_doubt(tmp_path: Path) -> None:
    pods = [claiming(f"p{number}", resourceClaimName="c") for number in range(2)]
    trace = import_objects(tmp_path / "x", [*pods, claim("c", exactly(WHOLE))])
    assert [row[0] for row in hours(trace).values()] == [1, 1]
    assert trace.quality["doubts"] == {reasons.SHARED_CLAIM: 2}


def test_resources_that_stand_for_claims(tmp_path: Path) -> None:
    key = "deviceclass.resource.kubernetes.io/"
    limits = {f"{key}gpu.nvidia.com": "4", f"{key}dranet-ib": "2"}
    one = pod("p", spec={"containers": [{"name": "c", "resources": {"limits": limits}}]})
    assert hours(import_objects(tmp_path / "x", [one])) == {"ml/p": (4, 0.0, 1.0, 3.0)}


CLAIMS = {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}]}


def usage(**resources: str) -> Json:
    flavors = dict.fromkeys(resources, "h100")
    given = {"name": "main", "count": 2, "resourceUsage": resources, "flavors": flavors}
    return {"admission": {"clusterQueue": "q", "podSetAssignments": [given]}}


def test_workloads_have_the_gpus_of_their_templates_times_their_pods(tmp_path: Path) -> None:
    one = workload(
        "w",
        admitted("09:00", "11:00"),
        gpus=0,
        pods=2,
        template=CLAIMS,
        status=usage(**{"whole-gpus": "8"}),
    )
    trace = import_objects(tmp_path / "x", [one, template("t", exactly(WHOLE, count=4))])
    assert hours(trace) == {"ml/w": (8, 0.0, 1.0, 3.0)}
    assert (jobs(trace)["ml/w"]["gpu_type"], trace.quality["doubts"]) == ("h100", {})


@pytest.mark.parametrize("name", ["whole-gpus", "example.com/gpu", "nvidia.com/gpu", "gpu"])
def test_workloads_without_their_templates_have_the_gpus_of_their_quota(
    tmp_path: Path, name: str
) -> None:
    one = workload(
        "w",
        admitted("09:00", "11:00"),
        gpus=0,
        pods=2,
        template=CLAIMS,
        status=usage(**{name: "8", "cpu": "3"}),
    )
    trace = import_objects(tmp_path / "x", [one])
    assert hours(trace) == {"ml/w": (8, 0.0, 1.0, 3.0)}
    assert trace.quality["doubts"] == {reasons.BY_QUOTA: 1}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("whole-devices", "8", reasons.NO_CLAIM),
        ("shared-gpus", "8", "shares GPUs in parts that are not recorded"),
        ("gpu.memory", "80Gi", "shares GPUs in parts that are not recorded"),
    ],
)
def test_quotas_that_are_no_number_of_gpus(
    tmp_path: Path, name: str, value: str, reason: str
) -> None:
    one = workload(
        "w", admitted("09:00", "11:00"), gpus=0, template=CLAIMS, status=usage(**{name: value})
    )
    trace = import_objects(tmp_path / "x", [one, workload("other", admitted("09:00", "10:00"))])
    assert trace.quality["dropped"] == {reason: 1}


def test_fractions_of_gpus_that_kai_shares_out(tmp_path: Path) -> None:
    half = pod("half", gpus=0, annotations={"gpu-fraction": "0.5"})
    two = {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}
    pods = [half, pod("two", gpus=0, annotations=two)]
    pods += [pod("memory", gpus=0, annotations={"gpu-memory": "4096"})]
    trace = import_objects(tmp_path / "x", pods)
    rows = jobs(trace)
    assert {name: (row["gpus"], row["gpu_milli"]) for name, row in rows.items()} == {
        "ml/half": (1, 500),
        "ml/two": (2, 250),
    }
    assert trace.quality["dropped"] == {"shares GPUs in parts that are not recorded": 1}
    for text in ("0", "1.5", "half", "-0.5", "0.0001"):
        with pytest.raises(TraceError) as caught:
            import_objects(tmp_path / "x", [pod("p", gpus=0, annotations={"gpu-fraction": text})])
        assert_states(str(caught.value), "line 1", "gpu-fraction", repr(text), "0.001 to 1")

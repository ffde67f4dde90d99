"""Slices of GPUs of different types, and GPUs of containers that run beside others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes import condition, import_objects, jobs, pod, workload
from wattkeeper.traces.readers.gpu_slices import to_milli

PRO_6000 = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


@pytest.mark.parametrize(
    ("slices", "memory_gb", "gpu_type", "milli"),
    [
        (1, 24, PRO_6000, 250),
        (1, 24, "nvidia_rtx_pro_6000_blackwell_max-q_workstation_edition", 250),
        (1, 24, "rtx6000pro", 250),
        (2, 48, PRO_6000, 500),
        (4, 96, PRO_6000, 1000),
        (1, 24, "NVIDIA-RTX-PRO-5000-Blackwell", 500),
        (2, 48, "rtx_pro_5000", 1000),
        (1, 16, "RTX-PRO-4500", 500),
        (2, 48, None, 500),
        (4, 96, None, 1000),
        (1, 24, None, 143),
        (1, 24, "NVIDIA-GB200", 143),
        (1, 24, "NVIDIA-GH200-480GB", 143),
        (1, 24, f"{PRO_6000}|NVIDIA-GB200", 143),
        (1, 24, f"{PRO_6000}|rtx-pro-6000", 250),
        (1, 6, "NVIDIA-A30", 250),
        (2, 12, "a30", 500),
        (1, 6, "mig", 250),
        (1, 5, "NVIDIA-A100-SXM4-40GB", 143),
        (7, 80, "NVIDIA-H100-80GB-HBM3", 1000),
    ],
)
def test_the_type_tells_how_many_slices_a_gpu_has(
    slices: int, memory_gb: int, gpu_type: str | None, milli: int
) -> None:
    assert to_milli(slices, memory_gb, gpu_type) == milli


@pytest.mark.parametrize(
    ("product", "milli"), [(PRO_6000, 250), ("NVIDIA-GB200", 143), (None, 143)]
)
@pytest.mark.parametrize("end", ["", ".me", ".me.all", "-me", ".gfx"])
def test_slices_of_pods_and_workloads(
    tmp_path: Path, product: str | None, milli: int, end: str
) -> None:
    selector = {"nodeSelector": {"nvidia.com/gpu.product": product}} if product else {}
    wanted = {"requests": {f"nvidia.com/mig-1g.24gb{end}": "1"}}
    spec = {"containers": [{"name": "c", "resources": wanted}], **selector}
    conditions = [condition("Admitted", "09:00"), condition("Finished", "11:00")]
    for objects in ([pod("p", spec=spec)], [workload("w", conditions, template=spec)]):
        (row,) = jobs(import_objects(tmp_path / "x.jsonl", objects)).values()
        assert (row["gpus"], row["gpu_milli"]) == (1, milli)


def container(gpus: int, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}, **more}


def sidecar(gpus: int) -> dict[str, Any]:
    return container(gpus, restartPolicy="Always")


@pytest.mark.parametrize(
    ("first", "gpus"),
    [
        ([], 2),
        ([sidecar(1)], 3),
        ([sidecar(1), sidecar(2)], 5),
        ([container(1)], 2),
        ([container(4)], 4),
        ([sidecar(1), container(4)], 5),
        ([container(4), sidecar(1)], 4),
        ([container(3), sidecar(1)], 3),
        ([container(1), sidecar(1), container(1)], 3),
    ],
)
def test_sidecars_hold_gpus_beside_the_containers(
    tmp_path: Path, first: list[dict[str, Any]], gpus: int
) -> None:
    """An init container needs its GPUs beside those of the sidecars before it alone."""
    spec = {"containers": [container(1), container(1)], "initContainers": first}
    conditions = [condition("Admitted", "09:00"), condition("Finished", "11:00")]
    for objects in ([pod("p", spec=spec)], [workload("w", conditions, template=spec)]):
        (row,) = jobs(import_objects(tmp_path / "x.jsonl", objects)).values()
        assert row["gpus"] == gpus


def test_a_sidecar_alone_may_have_the_gpus(tmp_path: Path) -> None:
    spec = {"containers": [{"name": "c"}], "initContainers": [sidecar(2)]}
    (row,) = jobs(import_objects(tmp_path / "x.jsonl", [pod("p", spec=spec)])).values()
    assert row["gpus"] == 2

"""GPUs that pods claim by dynamic resource allocation.

A pod names claims or their templates; how many devices of which class these ask for stands in
objects of their own (``resource.k8s.io``: ResourceClaim, ResourceClaimTemplate).
Sources: API reference of Kubernetes; the classes of NVIDIA's, AMD's and Intel's drivers.
"""

import re
from collections import Counter
from typing import Final, NamedTuple

from wattkeeper.traces.readers.json_values import (
    Json,
    read_needed_text,
    read_object,
    read_objects,
    read_text,
    read_value,
    read_whole,
)

CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Of a resource of a container that stands for a claim of so many devices of a class."""
WHOLE: Final = re.compile(r"(vfio\.)?gpu\.[a-z0-9.-]+")
VIRTUAL: Final = re.compile(r"vgpu\..+")
SLICE: Final = re.compile(r"([1-7])g\.?([0-9]+)gb")
GPU_RESOURCE: Final = "nvidia.com/gpu"
"""Stands for a whole GPU of any maker."""
PART_RESOURCE: Final = "nvidia.com/gpu.shared"
"""Stands for a part of unknown size."""
OTHER: Final = ""
"""Stands for a device that is not known to be a GPU."""
UNTOLD: Final = "?"
"""Stands for GPUs of unknown number."""


class Claim(NamedTuple):
    """Claims of a pod, or of equal pods.

    Attributes:
        keys: Those of the claim itself and of its template, as far as they are known.
        number: Of equal claims.
        named: Whether the pod names the claim itself, which others may name, too.
    """

    keys: tuple[str, ...]
    number: int
    named: bool


def read_claims(spec: Json, status: Json, namespace: str, pods: int) -> list[Claim]:
    """The claims of `pods` equal pods."""
    generated = {
        read_text(each, "name"): read_text(each, "resourceClaimName")
        for each in read_objects(status, "resourceClaimStatuses")
    }
    claims = []
    for each in read_objects(spec, "resourceClaims"):
        name = read_text(each, "resourceClaimName")
        template = read_text(each, "resourceClaimTemplateName")
        made = generated.get(read_text(each, "name"))
        keys = [_key(namespace, text) for text in (name, made) if text]
        keys += [_key(namespace, template, template=True)] if template else []
        claims.append(Claim(tuple(keys), 1 if name else pods, name is not None))
    return claims


def read_devices(record: Json) -> tuple[str, Counter[str]]:
    """The key of a claim or a template, and its devices as resources of a container.

    What was allocated counts, else what is asked for.
    """
    is_template = record.get("kind") == "ResourceClaimTemplate"
    name, namespace = (read_needed_text(record, f"metadata.{key}") for key in ("name", "namespace"))
    asked, classes = Counter[str](), dict[str, tuple[str, str]]()
    path = ("spec.spec" if is_template else "spec") + ".devices.requests"
    for request in read_objects(record, path):
        label = read_text(request, "name") or ""
        others = read_objects(request, "firstAvailable")
        exact = read_object(request, "exactly") or request
        classes[label] = _class(exact)
        classes |= {f"{label}/{read_text(each, 'name')}": _class(each) for each in others}
        if exact.get("adminAccess") is not True:
            resource, count = _alternative(others or [exact])
            asked[resource] += count
    given = Counter[str]()
    for result in read_objects(record, "status.allocation.devices.results"):
        if result.get("adminAccess") is not True:
            given[_given(result, classes)] += 1
    return _key(namespace, name, template=is_template), given or asked


def _alternative(requests: list[Json]) -> tuple[str, int]:
    """What is asked for, if all alternatives are as much of the same."""
    found = set[tuple[str, int]]()
    for request in requests:
        resource = device_resource(*_class(request))
        count = read_whole(request, "count")
        if read_text(request, "allocationMode") == "All" and resource != OTHER:
            return UNTOLD, 1
        found.add((resource, 1 if count is None else count))
    if len(found) == 1:
        return found.pop()
    return (OTHER if all(resource == OTHER for resource, _ in found) else UNTOLD), 1


def _given(result: Json, classes: dict[str, tuple[str, str]]) -> str:
    """The resource of an allocated device."""
    if read_value(result, "consumedCapacity") or read_value(result, "shareID"):
        return PART_RESOURCE
    known, text = classes.get(read_text(result, "request") or "", ("", ""))
    driver, device = read_text(result, "driver") or "", read_text(result, "device") or ""
    if WHOLE.fullmatch(driver) and "-mig-" in device:
        known, text = "mig.", f"{device} {text}"
    resource = device_resource(known, text)
    return device_resource(driver) if resource == OTHER else resource


def device_resource(device_class: str, text: str = "") -> str:
    """The resource of a container that a device of a class is as much as.

    `text` may name the profile of a slice, as selectors and the names of devices do.
    """
    if WHOLE.fullmatch(device_class):
        return GPU_RESOURCE
    if VIRTUAL.fullmatch(device_class):
        return PART_RESOURCE
    if device_class.startswith("mig."):
        match = SLICE.search(text)
        return f"nvidia.com/mig-{match[1]}g.{match[2]}gb" if match else PART_RESOURCE
    return OTHER


def _key(namespace: str, name: str, *, template: bool = False) -> str:
    return f"{namespace}/{'template/' if template else ''}{name}"


def _class(request: Json) -> tuple[str, str]:
    """The class that a request names, and its selectors."""
    selectors = read_objects(request, "selectors")
    texts = (read_text(each, "cel.expression") or "" for each in selectors)
    return read_text(request, "deviceClassName") or "", " ".join(texts)

"""Descriptions of systems."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats.mlperf_training.tree import MOST_SYSTEM_BYTES, Tree
from wattkeeper.traces.readers.json_values import quote

MAKERS: Final = frozenset(
    {"amd", "instinct", "intel", "nvidia", "gpu", "tesla", "ampere", "hopper", "blackwell"}
)
"""Words that are no part of a GPU's model."""
MOST_GPUS: Final = 1_000_000


class System(NamedTuple):
    """A system.

    Attributes:
        name: Of its folder.
        gpu_type: Model of its GPUs.
        gpus: GPUs of all nodes.
        nodes: Number of nodes.
        cooling: As stated; empty if it is not.
        driver: Version of the driver; empty if it is not stated.
        framework: As stated; empty if it is not.
    """

    name: str
    gpu_type: str
    gpus: int
    nodes: int
    cooling: str
    driver: str
    framework: str


def read_system(tree: Tree, submitter: str, name: str) -> System:
    """Read the description of a submitter's system.

    Raises:
        TraceError: If it is missing or wrong.
    """
    file = tree.systems.get((submitter, name))
    if file is None:
        where = f"{submitter}/systems/{name}.json"
        raise TraceError("is missing: it says which GPUs the system has", where)
    where = tree.where(file)
    data = tree.read(file)
    if len(data) > MOST_SYSTEM_BYTES:
        raise TraceError(f"is larger than {MOST_SYSTEM_BYTES:,} bytes", where)
    try:
        stated = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"is no valid JSON: {error}", where) from error
    if not isinstance(stated, dict):
        raise TraceError(f"is {quote(stated)}, must be an object", where)
    nodes = _whole(stated, "number_of_nodes", where)
    each = _whole(stated, "accelerators_per_node", where)
    if nodes * each > MOST_GPUS:
        raise TraceError(f"has {nodes * each:,} GPUs; up to {MOST_GPUS:,} are read", where)
    model = stated.get("accelerator_model_name")
    gpu_type = _name_gpu(model) if isinstance(model, str) else ""
    if not gpu_type:
        text = f"accelerator_model_name is {quote(model)}, must name the GPU"
        raise TraceError(text, where)
    return System(
        name,
        gpu_type,
        nodes * each,
        nodes,
        _text(stated.get("cooling")),
        _driver(stated.get("other_software_stack")),
        _text(stated.get("framework")),
    )


def _whole(stated: dict[str, Any], key: str, where: str) -> int:
    value = stated.get(key)
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,7}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_GPUS:
        text = f"{key} is {quote(stated.get(key))}, must be a whole number > 0"
        raise TraceError(text, where)
    return value


def _name_gpu(text: str) -> str:
    """``NVIDIA Blackwell GPU (B200-SXM-180GB)`` -> ``B200-SXM-180GB``."""
    words = re.findall(r"[A-Za-z0-9]+", text)
    return "-".join(word for word in words if word.lower() not in MAKERS)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _driver(stack: object) -> str:
    """The version of the driver, in an object or in a list of them."""
    for entry in stack if isinstance(stack, list) else [stack]:
        if isinstance(entry, dict) and (version := _text(entry.get("cuda_driver_version"))):
            return version
    return ""

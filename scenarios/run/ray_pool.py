"""Runs on the hosts of a Ray cluster: Ray places them, and runs those of a lost host elsewhere."""

import contextlib
from collections import deque
from collections.abc import Callable, Generator
from importlib import import_module
from socket import gethostname
from typing import Any, Final, TypeVar

from wattkeeper.live.controller.launchers import ray as ray_runner
from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.scenarios.inputs.run_inputs import InputsByVariant
from wattkeeper.scenarios.run.process_pool import LOST, TRIES
from wattkeeper.scenarios.run.unit import UnitResult, code_digest, run_unit
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.traces.process_setup import configure_process

T = TypeVar("T")
K = TypeVar("K")

AHEAD: Final = 4
"""Runs that Ray is given for each of its CPUs: enough to keep them busy."""


def run_tasks(
    tasks: deque[T],
    of_task: Callable[[T], tuple[RunSpec, K]],
    inputs_of: Callable[[K], InputsByVariant],
    address: str,
) -> Generator[tuple[T, UnitResult | EnvironmentLacks], None, None]:
    """Run on a Ray cluster what tasks ask for; yield each result as soon as it is there.

    Args:
        tasks: They are taken from the left.
        of_task: The run that a task asks for, and what names its inputs.
        inputs_of: The inputs of that name, by variant; Ray's object store gets them once, for all
            tasks that stand together.
        address: Address of the cluster.

    Yields:
        A task and its result, or an error where its host or process was lost each time.

    Raises:
        EnvironmentLacks: If Ray is not there, or a host has another wattkeeper.
    """
    ray_runner.connect(address)
    ray: Any = import_module("ray")
    call, code = ray.remote(_run_on_host).options(max_retries=TRIES), code_digest()
    running: dict[Any, T] = {}
    stored: tuple[K, Any] | None = None
    try:
        while tasks or running:
            most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while tasks and len(running) < most:
                task = tasks.popleft()
                spec, key = of_task(task)
                if stored is None or stored[0] != key:
                    stored = key, ray.put(inputs_of(key))
                running[call.remote(spec, stored[1], code)] = task
            (finished, *_), _ = ray.wait(list(running))
            task = running.pop(finished)
            try:
                outcome: UnitResult | EnvironmentLacks = ray.get(finished)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except (
                ray.exceptions.WorkerCrashedError,
                ray.exceptions.NodeDiedError,
                ray.exceptions.OutOfMemoryError,
                ray.exceptions.ObjectLostError,
            ):
                outcome = EnvironmentLacks(LOST.partition(";")[0])
            yield task, outcome
    except ray.exceptions.RayError as error:
        first = str(error).strip().partition("\n")[0]
        raise EnvironmentLacks(f"the Ray cluster at {address} failed: {first}") from None
    finally:
        for left in running:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(left, force=True)
        ray.shutdown()


def _run_on_host(spec: RunSpec, inputs: InputsByVariant, code: str) -> UnitResult:
    """Run on a host of the cluster, if its wattkeeper is the same.

    Raises:
        EnvironmentLacks: If it is another one.
    """
    if code_digest() != code:
        raise EnvironmentLacks(
            f"{gethostname()} of the Ray cluster has another wattkeeper: install the same version "
            "on all hosts"
        )
    configure_process()
    return run_unit(spec, inputs[spec.variant.name])

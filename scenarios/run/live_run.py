"""Runs a scenario live: the same world, on the wall clock, with processes that train."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import pyarrow as pa

from wattkeeper.live.controller.backend import AttemptEnding, LiveBackend
from wattkeeper.live.controller.clock import LiveClock, VirtualWallClock
from wattkeeper.live.controller.event_log import EventLog
from wattkeeper.live.controller.launchers import ray as ray_runner
from wattkeeper.live.controller.launchers.local import (
    Launcher,
    LocalLauncher,
    check_torchrun,
    command_line,
)
from wattkeeper.live.controller.process_table import ExternalLinks, LiveSettings
from wattkeeper.live.controller.progress import Watch
from wattkeeper.live.controller.workloads import Trainings, TrainingSpec
from wattkeeper.live.host import proc
from wattkeeper.live.host.wall_clock import STILL, WallClock
from wattkeeper.live.session.arguments import stepped
from wattkeeper.live.session.session import POWER_CONTROL
from wattkeeper.live.wire.client import LEASE
from wattkeeper.live.wire.server import SessionServer
from wattkeeper.policies.errors import (
    EnvironmentLacks,
    InputError,
    PolicyError,
    Problem,
    ScenarioError,
    StoreError,
)
from wattkeeper.policies.protocols import WHOLE, Options
from wattkeeper.scenarios.inputs.policy_checks import located
from wattkeeper.scenarios.inputs.read import RunInputs
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.schema import ArchitectureSearch, LiveWorkload, RecurringWorkload
from wattkeeper.scenarios.spec.schema import LiveSection as LivePart
from wattkeeper.scenarios.spec.variants import (
    DEFAULTS,
    RunSpec,
    occupancy_of,
    policy_of,
    run_specs,
    zoo_of,
)
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.engine.replay import options_of
from wattkeeper.sim.engine.sources import RecurringSource, Source
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.sim.results.tables import RunResult, collect
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.files.atomic import replacing_file

if TYPE_CHECKING:
    from wattkeeper.live.devices.device import Device

MARK: Final = "wattkeeper-live.json"
"""Says of a folder that it holds live runs, and of which scenario."""

HALTING: Final = (
    b"interrupted: trainings save their state, and go on with the next run of the same folder; "
    b"interrupt again to end them at once\n"
)


class Hardware(NamedTuple):
    """What is on a host.

    Attributes:
        types: Of its devices.
        gpus: Devices that have power limits.
        limits_w: Limits that may be chosen, W, ascending; the one in force if none may.
        allowed: Whether they may be set.
        why: If not, why not.
        how: Where energy is from.
    """

    types: tuple[str, ...]
    gpus: int
    limits_w: tuple[float, ...]
    allowed: bool
    why: str
    how: str


@dataclass(frozen=True)
class Equipment:
    """What live runs of a scenario use.

    Attributes:
        part: What the scenario says of them.
        folder: Where their logs are, and all that they need while they go on.
        trainings: How each workload is trained.
        devices: What measures here, by type.
        limits: Whether power limits are set, and if not, why.
        measured: Whether energy is.
    """

    part: LivePart
    folder: Path
    trainings: Trainings
    devices: tuple[str, ...]
    limits: str
    measured: bool


def equip(
    loaded: LoadedScenario, inputs: RunInputs, folder: Path, ray: str | None = None
) -> Equipment:
    """Check that a scenario can run live here, and find out what there is to run it on.

    Raises:
        InputError: If it cannot run live at all.
        PolicyError: If a policy needs to know the future.
        EnvironmentLacks: If a package or a device is missing.
    """
    part = loaded.scenario.live or LivePart()
    _check(loaded, inputs, part)
    if ray is not None:
        part = part.model_copy(update={"runner": "ray"})
    if part.runner == "torchrun":
        check_torchrun()
    elif part.runner == "ray":
        ray_runner.connect(ray)
    trainings = {
        key: TrainingSpec(options_of(profile), profile=profile)
        for key, profile in inputs.profiles.items()
    }
    if not part.workloads:
        return Equipment(part, folder, trainings, ("synthetic",), "set", True)
    for name, workload in part.workloads.items():
        with_place = loaded.document.where(("live", "workloads", name, "command"))
        try:
            command_line(workload.command)
        except InputError as error:
            raise ScenarioError(Problem(str(error), with_place)) from None
    if part.runner == "ray":
        hardware: Hardware = ray_runner.anywhere(_hardware, part.power_control)
    else:
        hardware = _hardware(part.power_control)
    etas = {(variant.objective or loaded.scenario.objective).eta
            for variant in loaded.scenario.variants.values()}  # fmt: skip
    if hardware.how == "absent" and max(etas) > 0:
        raise EnvironmentLacks(
            f"nothing here measures energy, so that no cost with eta={max(etas):g} is known: say "
            "`objective: {eta: 0}`, which counts time alone, or see with `wattkeeper doctor` what "
            "is missing"
        )
    most = inputs.cluster.gpus
    if part.runner != "ray" and 0 < hardware.gpus < most:
        raise EnvironmentLacks(
            f"the scenario's cluster has {most} GPUs, this host shows {hardware.gpus}: make it "
            "smaller (cluster), or use more hosts (live.runner: ray)"
        )
    gpus = (
        loaded.scenario.workload.gpus
        if isinstance(loaded.scenario.workload, RecurringWorkload)
        else 1
    )
    for name, workload in part.workloads.items():
        for gpu_type in inputs.cluster.gpu_types:
            options = _options(name, workload, gpu_type, gpus, hardware.limits_w)
            trainings[name, gpus, gpu_type] = TrainingSpec(
                options, workload.command, workload.target, workload.higher_is_better, None,
                hardware.allowed,
            )  # fmt: skip
    shown = "set" if hardware.allowed else f"not set: {hardware.why}"
    return Equipment(part, folder, trainings, hardware.types, shown, hardware.how != "absent")


def _check(loaded: LoadedScenario, inputs: RunInputs, part: LivePart) -> None:
    scenario, document = loaded
    here = document.where(("workload",))
    if isinstance(scenario.workload, ArchitectureSearch):
        raise ScenarioError(Problem("kind: a search trains for real as it is; leave out --live",
                                    here))  # fmt: skip
    if inputs.jobs is not None and part.workloads:
        raise ScenarioError(Problem(
            "kind: live.workloads needs a workload of kind recurring; jobs of a trace are "
            "rehearsed", here))  # fmt: skip
    unknown = sorted(set(part.workloads) - set(inputs.recurrences))
    if unknown and inputs.jobs is None:
        raise ScenarioError(Problem(
            f"no workload {unknown[0]!r} recurs; there is {', '.join(inputs.recurrences)}",
            document.where(("live", "workloads", unknown[0]))))  # fmt: skip
    if part.speed is not None and inputs.jobs is None and not inputs.profiles:
        raise ScenarioError(Problem("speed: nothing is rehearsed", document.where(("live",))))
    if inputs.jobs is not None and any(milli != WHOLE for milli in
                                       inputs.jobs["gpu_milli"].unique().to_pylist()):  # fmt: skip
        raise ScenarioError(Problem("trace: it has jobs that share GPUs, which no process does "
                                    "live", here))  # fmt: skip
    for variant in scenario.variants:
        if zoo_of(scenario, variant) is not None:
            raise located(loaded, variant, InputError(
                "zoo: live, only a search (workload.kind) has one; leave out zoo or --live"
            ))  # fmt: skip
        if occupancy_of(scenario, variant) == "recorded":
            raise located(loaded, variant, InputError(
                "occupancy: live, a job holds its GPUs for as long as it takes; leave out recorded"
            ))  # fmt: skip
        if (scenario.variants[variant].profiling or scenario.profiling) == "foreknown":
            raise located(loaded, variant, InputError(
                "profiling: live, what it finds is known when it is done; leave out foreknown"
            ))  # fmt: skip
        for point in DEFAULTS:
            config = policy_of(scenario, variant, point)
            if config.needs_foresight:
                raise located(loaded, variant, PolicyError(
                    f"{point}: {config.kind} needs to know the future, which nobody does live: "
                    "choose another policy, or leave out the variant", point
                ))  # fmt: skip


def _hardware(control: Literal["auto", "off"]) -> Hardware:
    from wattkeeper.live.devices import found
    from wattkeeper.live.devices.energy_meter import EnergyMeter
    from wattkeeper.live.devices.power_limiter import PowerLimiter

    devices = found()
    meter = EnergyMeter(devices, WallClock())
    meter.close()
    with PowerLimiter(devices, control) as limiter:
        return Hardware(
            types=tuple(sorted({device.gpu_type for device in devices})),
            gpus=sum(device.limits is not None for device in devices),
            limits_w=_limits(devices, limiter.allowed),
            allowed=limiter.allowed,
            why=limiter.why,
            how=meter.how,
        )


def _limits(devices: Sequence[Device], allowed: bool) -> tuple[float, ...]:
    """Power limits that may be chosen, W, ascending; the one in force if none may."""
    ranges = [device.limits for device in devices if device.limits is not None]
    if not ranges:
        return (1.0,)
    highest_w = min(limits.highest_w for limits in ranges)
    if not allowed:
        return (min(device.limit_w() for device in devices if device.limits is not None),)
    return stepped(max(limits.lowest_w for limits in ranges), highest_w)


def _options(
    name: str, workload: LiveWorkload, gpu_type: str, gpus: int, limits_w: tuple[float, ...]
) -> Options:
    sizes = tuple(sorted(workload.batch_sizes))
    return Options(
        key=f"{name}@{gpu_type}x{gpus}",
        gpu_type=gpu_type,
        gpus=gpus,
        batch_sizes=sizes,
        limits_w=(limits_w,) * len(sizes),
        default_batch_size=workload.default_batch_size,
        max_power_w=limits_w[-1],
        max_epochs=workload.max_epochs,
    )


def begin(loaded: LoadedScenario, folder: Path) -> bool:
    """Make the folder of a scenario's live runs, or go on with what is in it.

    Another `live.lease_s` may be said to go on with, as for a script that starts slowly.

    Returns:
        Whether it goes on.

    Raises:
        StoreError: If it holds something else, or unfinished runs of another scenario.
    """
    decides = loaded.scenario.model_dump_json(exclude={"live": {"lease_s"}})
    digest = sha256(decides.encode()).hexdigest()
    mark = folder / MARK
    if folder.exists() and any(folder.iterdir()):
        try:
            found = json.loads(mark.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise StoreError(
                f"{folder} holds no live runs of wattkeeper: name another folder (--out)"
            ) from None
        if found["digest"] == digest and not found["done"]:
            return True
        if not found["done"]:
            raise StoreError(
                f"{folder} holds an unfinished run of another scenario, or with other settings: "
                "finish it as it was begun, remove the folder, or name another one (--out)"
            )
        for each in folder.iterdir():  # the mark goes last, so that an end in between is no harm
            if each.is_dir():
                shutil.rmtree(each)
    folder.mkdir(parents=True, exist_ok=True)
    _write(mark, {"digest": digest, "done": False})
    return False


def finish(folder: Path) -> None:
    """Note that the runs in a folder are over: the next ones begin anew."""
    mark = folder / MARK
    found = json.loads(mark.read_text(encoding="utf-8"))
    _write(mark, found | {"done": True})


def _write(mark: Path, content: dict[str, Any]) -> None:
    with replacing_file(mark) as fresh:
        fresh.write_text(json.dumps(content), encoding="utf-8")


def replay(loaded: LoadedScenario, inputs: RunInputs, folder: Path) -> list[RunResult]:
    """Play the logs of live runs again, without starting anything: the decisions are the same.

    Args:
        loaded: The scenario.
        inputs: What it reads.
        folder: Where the live runs are kept.

    Raises:
        InputError: If a log ends before its run does.
    """
    equipment = equip(loaded, inputs, folder)
    return [execute(spec, inputs, loaded, equipment, again=True)[0]
            for spec in run_specs(loaded.scenario)]  # fmt: skip


def execute(
    spec: RunSpec,
    inputs: RunInputs,
    loaded: LoadedScenario,
    equipment: Equipment,
    *,
    again: bool = False,
    watch: Watch = lambda _: None,
) -> tuple[RunResult, list[AttemptEnding]]:
    """Run one variant with one seed, or go on with it.

    Args:
        spec: Which.
        inputs: What it reads.
        loaded: The scenario.
        equipment: What it uses.
        again: Only play its log again.
        watch: Is told what each attempt does.
    """
    from wattkeeper.scenarios.run import build

    folder = equipment.folder / spec.variant / str(spec.seed)
    part, hardware = equipment.part, inputs.cluster
    log = EventLog(folder / "log.sqlite")
    try:
        wall = _wall(part, log)
        clock = LiveClock(wall, log)
        if inputs.jobs is None:
            assert isinstance(loaded.scenario.workload, RecurringWorkload)
            source: Source = RecurringSource(inputs.recurrences, loaded.scenario.workload.gpus)
        else:
            source = build.source_of(inputs)
        streams = build.streams_of(spec, inputs)
        token = log.get("token") or secrets.token_urlsafe(16)
        log.note("token", token)
        environment = {LEASE: repr(part.lease_s)}
        if part.power_control == "off":
            environment[POWER_CONTROL] = "off"
        environment |= {STILL: "1"} if part.speed is not None else wall.environment()
        setting = LiveSettings(spec.rules.objective, folder, part.lease_s, environment)
        backend = LiveBackend(clock, equipment.trainings, hardware, streams, setting, watch)
        world = World(clock, Cluster(hardware), source, backend, spec.policies, spec.rules, streams)
        backend.listener = world
        if not again:
            capacity = hardware.capacity.tolist()
            server = _server(backend, token, log, part)
            runner = _runner(server, backend, part, folder, token, capacity)
            backend.fleet.hands = ExternalLinks(server, runner, token)
        try:
            with _halted_by_signals(backend):
                world.run()
        finally:
            backend.fleet.close()
    finally:
        log.close()
    if again and backend.unfinished:
        raise InputError(f"{log.path} ends before its run does: run it live to its end first")
    optima = build.optima_of(spec, inputs)
    ran = collect(
        spec.variant, spec.seed, world.recorder, source, hardware, optima, clock.events,
        unmeasured=() if equipment.measured else tuple(inputs.recurrences),
    )  # fmt: skip
    return _as_measured(ran, backend.endings), backend.endings


@contextmanager
def _halted_by_signals(backend: LiveBackend) -> Iterator[None]:
    """Inside, an interruption or SIGTERM lets trainings save their state; a second one does not."""
    if current_thread() is not main_thread():
        yield
        return

    def halt(_number: int, _frame: object) -> None:
        for number in before:
            signal.signal(number, signal.default_int_handler)
        os.write(2, HALTING)
        backend.halt()

    before = {
        number: signal.signal(number, halt) or signal.SIG_DFL
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wall(part: LivePart, log: EventLog) -> WallClock:
    if part.speed is not None:
        return VirtualWallClock(part.speed)
    boot = proc.boot()
    known = json.loads(log.get("began") or "null")
    if known is None:
        known = {"boot": boot, "s": time.monotonic()}
    elif known["boot"] != boot:  # the host was started anew: the time that it was off is left out
        last_s = max((event.time_s for event in log.events()), default=0.0)
        known = {"boot": boot, "s": time.monotonic() - last_s}
    log.note("began", json.dumps(known))
    return WallClock(1.0, known["s"])


def _server(backend: LiveBackend, token: str, log: EventLog, part: LivePart) -> SessionServer:
    host = "" if part.runner == "ray" else "127.0.0.1"
    try:
        server = SessionServer(backend.post, token, int(log.get("port") or 0), host)
    except EnvironmentLacks:  # somebody else has the port now: sessions will not find the way back
        server = SessionServer(backend.post, token, host=host)
    log.note("port", str(server.port))
    return server


def _runner(
    server: SessionServer,
    backend: LiveBackend,
    part: LivePart,
    folder: Path,
    token: str,
    capacity: list[int],
) -> Launcher:
    if part.runner == "ray":
        return ray_runner.RayLauncher(backend.exited, folder, capacity)
    first_gpu = [0, *accumulate(capacity)]
    torchrun = part.runner == "torchrun"
    return LocalLauncher(server, backend.exited, folder, token, first_gpu, torchrun=torchrun)


def _as_measured(ran: RunResult, endings: Sequence[AttemptEnding]) -> RunResult:
    """Results that say which limits were in force."""
    tables = dict(ran.tables)
    jobs = tables["jobs"]
    jobs = replace_column(jobs, "replayed", pa.array(["live"] * len(jobs)))
    by_attempt = {(end.job_id, end.attempt): end.outcome for end in endings}
    keys = zip(jobs["job_id"].to_pylist(), jobs["attempt"].to_pylist(), strict=True)
    outcomes = [by_attempt.get(key) for key in keys]
    limits = [
        limit if outcome is None or outcome.limit_set else outcome.power_limit_w
        for outcome, limit in zip(outcomes, jobs["power_limit_w"].to_pylist(), strict=True)
    ]
    jobs = replace_column(jobs, "power_limit_w", pa.array(limits, pa.float64()))
    early = [outcome is not None and outcome.cause == "bound" for outcome in outcomes]
    jobs = replace_column(jobs, "early_stopped", pa.array(early))
    tables["jobs"] = jobs
    by = dict(ran.by)
    by["replayed"] = {"live": ran.metrics}
    return replace(ran, tables=tables, by=by, digest=digest_tables(tables))


def about(
    equipment: Equipment, ended: Sequence[tuple[RunSpec, Sequence[AttemptEnding]]]
) -> dict[str, Any]:
    """What the manifest says of live runs; attempts that were lost are listed."""
    endings = [ending for _, some in ended for ending in some]
    return {
        "runner": equipment.part.runner,
        "folder": str(equipment.folder),
        "speed": equipment.part.speed,
        "devices": list(equipment.devices),
        "power_limits": equipment.limits,
        "energy": sorted({ending.outcome.how for ending in endings}),
        "causes": dict(sorted(Counter(ending.outcome.cause for ending in endings).items())),
        "attempts": [
            {"variant": spec.variant, "seed": spec.seed, "job_id": end.job_id,
             "attempt": end.attempt, "cause": end.outcome.cause, "message": end.outcome.message}
            for spec, some in ended
            for end in some if end.outcome.cause not in {"reached", "epochs", "bound", "left"}
        ],
    }  # fmt: skip

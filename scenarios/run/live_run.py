"""Runs a scenario live: the same world, on the wall clock, with processes that train."""

import json
import os
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from threading import current_thread, main_thread
from typing import Final

from wattkeeper.live.controller.attempt import LiveSettings
from wattkeeper.live.controller.backend import LiveBackend
from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.controller.event_log import TOKEN, EventLog
from wattkeeper.live.controller.launchers import ray as ray_runner
from wattkeeper.live.controller.launchers.launcher import Launcher
from wattkeeper.live.controller.launchers.local import LocalLauncher
from wattkeeper.live.controller.lifecycle import AttemptEnding
from wattkeeper.live.controller.process_table import ExternalLinks
from wattkeeper.live.controller.progress import Watch
from wattkeeper.live.controller.virtual_time import VirtualWallClock
from wattkeeper.live.devices.power_limiter import POWER_CONTROL
from wattkeeper.live.host import process_identity
from wattkeeper.live.host.wall_clock import STILL, WallClock
from wattkeeper.live.signals.feed import Tell
from wattkeeper.live.wire.client import LEASE
from wattkeeper.live.wire.server import SessionServer
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.scenarios.inputs.limit_models import unprofiled_power
from wattkeeper.scenarios.inputs.run_inputs import InputsByVariant, RunInputs
from wattkeeper.scenarios.kinds.simulation import (
    build_world,
    build_zoo,
    collect_results,
    source_of,
    streams_of,
)
from wattkeeper.scenarios.run.interruptions import INTERRUPTIONS
from wattkeeper.scenarios.run.live_equipment import Equipment, equip
from wattkeeper.scenarios.run.live_results import with_outcomes
from wattkeeper.scenarios.run.live_signals import log_path, open_live_signals
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.sections.live import LiveSection
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.sim.cluster_results.tables import ClusterResult

STUCK_S: Final = 8.0
"""After an interruption, a step of the run may take so long, s; then it is interrupted itself, as
where a policy loops for ever."""
HALTING: Final = (
    b"interrupted: trainings save their state, and go on with the next run of the same folder; "
    b"interrupt again to end them at once\n"
)


def replay(loaded: LoadedScenario, runs: InputsByVariant, folder: Path) -> list[ClusterResult]:
    """Play the logs of live runs again, without starting anything: the decisions are the same.

    Raises:
        InputError: If a log ends before its run does.
    """
    equipment = equip(loaded, runs, folder)
    return [
        execute(spec, runs[spec.variant.name], equipment, again=True)[0] for spec in loaded.runs
    ]


def execute(
    spec: RunSpec,
    inputs: RunInputs,
    equipment: Equipment,
    *,
    again: bool = False,
    watch: Watch = lambda _: None,
    tell: Tell = lambda line: None,
) -> tuple[ClusterResult, list[AttemptEnding]]:
    """Run one variant with one seed, or resume it; `again` only plays its log again.

    Raises:
        InputError: If it only plays its log again, which ends before the run does.
    """
    path = log_path(spec, equipment.folder)
    folder, section = path.parent, equipment.section
    with closing(EventLog(path)) as log:
        wall = _wall(section, log)
        env, streams = LiveEnvironment(wall, log), streams_of(spec, inputs)
        environment = _environment(section, wall)
        stores = spec.variant.zoo is not None and inputs.trained
        settings = LiveSettings(
            spec.variant.rules.objective,
            folder,
            section.lease_s,
            environment,
            (folder / "zoo").absolute() if stores else None,
        )
        signals = open_live_signals(inputs, log, env, tell, again=again)
        backend = LiveBackend(
            env,
            equipment.trainings,
            inputs.cluster,
            streams,
            settings,
            unprofiled_power(inputs, spec.variant.boundness),
            watch,
            signals.by_name,
        )
        zoo = build_zoo(spec, inputs, streams)
        source = source_of(inputs, spec.variant.policies.select.names_queues)
        world = build_world(spec, inputs, env, streams, backend, source, zoo, signals.by_name)
        if not again:
            backend.processes.links = _links(
                backend, log, section, inputs.cluster.capacity.tolist()
            )
        try:
            with _halted_by_signals(backend, env), signals.arriving(env, tell):
                world.run()
        finally:
            backend.processes.close()
    if again and backend.unfinished:
        raise InputError(f"{log.path} ends before its run does: run it live to its end first")
    unmeasured = () if equipment.measured else inputs.trained
    result = collect_results(spec, inputs, world, unmeasured)
    endings = backend.lifecycle.endings
    return with_outcomes(result, endings), endings


def has_begun(specs: Sequence[RunSpec], folder: Path) -> bool:
    """Whether any of these runs, in the folder of all, came further than its first checks."""
    for path in (log_path(spec, folder) for spec in specs):
        if path.exists():
            with closing(EventLog(path)) as log:
                if log.has_begun:
                    return True
    return False


@contextmanager
def _halted_by_signals(backend: LiveBackend, env: LiveEnvironment) -> Iterator[None]:
    """Inside, an interruption lets trainings save their state; a second one does not.

    Nor does the first one if a step of the run takes longer than `STUCK_S`.
    """
    if current_thread() is not main_thread():
        yield
        return

    turns = -1

    def halt(_number: int, _frame: object) -> None:
        for number in before:
            signal.signal(number, signal.default_int_handler)
        with suppress(OSError):
            os.write(2, HALTING)
        check_progress(0, None)
        signal.setitimer(signal.ITIMER_REAL, STUCK_S, STUCK_S)
        backend.halt()

    def check_progress(_number: int, _frame: object) -> None:
        nonlocal turns
        if turns == env.turns and not env.is_idle:
            raise KeyboardInterrupt
        turns = env.turns

    handlers = {number: signal.getsignal(number) for number in INTERRUPTIONS}
    before = {
        number: handler or signal.SIG_DFL
        for number, handler in handlers.items()
        if handler is not signal.SIG_IGN
    }
    alarm_handler = signal.signal(signal.SIGALRM, check_progress)
    try:
        for number in before:
            signal.signal(number, halt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, alarm_handler)


def _wall(section: LiveSection, log: EventLog) -> WallClock:
    if section.speed is not None:
        return VirtualWallClock(section.speed)
    boot = process_identity.boot_id()
    known = json.loads(log.get("began") or "null") if log.has_begun else None
    if known is None:
        if len(log):
            raise log.damaged("the time when the run began is missing")
        known = {"boot": boot, "s": time.monotonic()}
    elif known["boot"] != boot:  # the host was restarted: its time off is left out
        last_s = max((event.time_s for event in log.events()), default=0.0)
        known = {"boot": boot, "s": time.monotonic() - last_s}
    log.note("began", json.dumps(known))
    return WallClock(1.0, known["s"])


def _environment(section: LiveSection, wall: WallClock) -> dict[str, str]:
    """Variables that every training process gets."""
    environment = {LEASE: repr(section.lease_s)}
    if section.power_control == "off":
        environment[POWER_CONTROL] = "off"
    return environment | ({STILL: "1"} if section.speed is not None else wall.environment())


def _links(
    backend: LiveBackend, log: EventLog, section: LiveSection, capacity: list[int]
) -> ExternalLinks:
    """The server that sessions connect to, and the launcher of their processes.

    A run that resumes keeps its token and, unless it is taken, its port: sessions find it again.
    """
    token = log.get(TOKEN) or secrets.token_urlsafe(16)
    log.note(TOKEN, token)
    host = ray_runner.node_address() if section.runner == "ray" else LocalLauncher.host
    try:
        server = SessionServer(backend.post, token, int(log.get("port") or 0), host)
    except EnvironmentLacks:  # another process has the port: sessions that still run are lost
        server = SessionServer(backend.post, token, host=host)
    log.note("port", str(server.port))
    folder = log.path.parent
    if section.runner == "ray":
        launcher: Launcher = ray_runner.RayLauncher(backend.exited, folder, capacity)
    else:
        launcher = LocalLauncher(
            server,
            backend.exited,
            folder,
            token,
            [0, *accumulate(capacity)],
            torchrun=section.runner == "torchrun",
        )
    return ExternalLinks(server, launcher, token)

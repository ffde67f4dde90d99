"""Signals of live runs in real time: their sources, and what the log keeps of them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.controller.event_log import EventLog
from wattkeeper.live.controller.events import ExternalEvent, SignalArrived
from wattkeeper.live.signals.feed import Post, SignalFeed, Tell
from wattkeeper.live.signals.live_signal import LiveSignal, TimedValue
from wattkeeper.live.signals.providers import (
    ElectricityMaps,
    GrowingFile,
    Provider,
    SlotValue,
    WattTime,
)
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.scenarios.analysis.manifest import ArrivedSignal
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, SignalInput
from wattkeeper.scenarios.inputs.signals import RATES, series_options
from wattkeeper.scenarios.spec.sections.signals import (
    ElectricityMapsSource,
    GrowingFileSource,
    WattTimeSource,
)
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.traces.electricity.series import format_time
from wattkeeper.traces.files.names import file_name


@dataclass(frozen=True)
class LiveSignals:
    """The signals of a run whose values arrive.

    Attributes:
        by_name: By name.
        feeds: What asks for their values; empty where a log is played again.
        log: The log of the run.
    """

    by_name: Mapping[str, LiveSignal]
    feeds: Mapping[str, SignalFeed]
    log: EventLog

    @contextmanager
    def arriving(self, env: LiveEnvironment, tell: Tell) -> Iterator[None]:
        """Inside, values are posted to an environment as they arrive, and faults are told."""
        with ExitStack() as stack:
            for name, feed in self.feeds.items():
                begun_s = time.time() - env.wall.now_s()  # second 0, since 1970
                stack.callback(self._conclude, name, env)
                stack.callback(feed.close)
                last_s, answered_s = _last_since_s(self.log, name, self.by_name[name])
                feed.start(
                    begun_s + last_s,
                    begun_s + answered_s,
                    _poster(env, name, begun_s),
                    _naming(name, tell),
                )
            yield

    def _conclude(self, name: str, env: LiveEnvironment) -> None:
        """Note until when values of a signal were asked for, and what failed."""
        feed = self.feeds[name]
        failures = _ending(self.log, name)["failures"] + feed.failures
        ending = {"until_s": env.wall.now_s(), "failures": failures, "problem": feed.problem}
        self.log.note(f"signal {name} end", json.dumps(ending))


def open_live_signals(
    inputs: RunInputs, log: EventLog, env: LiveEnvironment, tell: Tell, *, again: bool
) -> LiveSignals:
    """The signals of a run with a source of live values.

    What is known at the beginning is kept in the log, so that the run can resume with it. `again`
    only plays the log again, and asks no source. `tell` is called where the present slot has no
    value.

    Raises:
        InputError: If the forecast does not suit the slots.
        EnvironmentLacks: If a source does not answer, and there is nothing to fall back on.
    """
    by_name: dict[str, LiveSignal] = {}
    feeds: dict[str, SignalFeed] = {}
    for name, signal in inputs.signals.items():
        if signal.source is None:
            continue
        known = json.loads(log.get(f"signal {name}") or "null") if log.has_begun else None
        if not again:
            fallback = signal.source.fallback
            provider = _provider(name, signal, math.nan if known is None else known["slot_s"])
            feeds[name] = SignalFeed(provider, None if fallback == "last" else fallback)
            if known is None:
                readings = _ask_first(name, feeds[name])
                known = _first_values(feeds[name], readings, env)
                if lack := _describe_lack(feeds[name], readings):
                    _naming(name, tell)(f"{lack}; {feeds[name].describe_fallback()}")
                log.note(f"signal {name}", json.dumps(known))
        if known is None:
            raise log.damaged(f"the first values of the signal {name!r} are missing")
        by_name[name] = _make_signal(name, signal, known)
    return LiveSignals(by_name, feeds, log)


def _ask_first(name: str, feed: SignalFeed) -> list[SlotValue]:
    try:
        return feed.first()
    except EnvironmentLacks as error:
        raise EnvironmentLacks(f"signals.{name}.live: {error}") from None


def _provider(name: str, signal: SignalInput, slot_s: float) -> Provider:
    """Where values come from; `slot_s`: length of a file's slots, s, if the run knows it."""
    source = signal.source
    if isinstance(source, ElectricityMapsSource):
        return ElectricityMaps(source.zone, source.address)
    if isinstance(source, WattTimeSource):
        return WattTime(source.region, source.address)
    assert isinstance(source, GrowingFileSource)
    path, quantity = signal.beside / source.file, RATES.get(name, "value")
    return GrowingFile(path, quantity, series_options(source), slot_s)


def _first_values(
    feed: SignalFeed, readings: list[SlotValue], env: LiveEnvironment
) -> dict[str, Any]:
    """What is known at the beginning, in the time of the run."""
    provider, begun_s = feed.provider, time.time() - env.wall.now_s()
    is_fallback = not readings
    if is_fallback:
        assert feed.fallback is not None
        if not provider.slot_s > 0:
            raise EnvironmentLacks(feed.problem)
        slot = time.time() // provider.slot_s
        readings = [SlotValue(slot * provider.slot_s, feed.fallback)]
    values = [(begin_s - begun_s, value) for begin_s, value in readings]
    return {
        "unit": provider.unit,
        "slot_s": provider.slot_s,
        "values": values,
        "source": provider.identity,
        "fallback": is_fallback,
    }


def _describe_lack(feed: SignalFeed, readings: list[SlotValue]) -> str:
    """Why the present slot has no value at the beginning of a run; empty if it has one."""
    source = feed.provider.identity
    if not readings:
        return feed.problem or f"{source}: no slot has begun yet"
    begin_s = readings[-1].begin_s
    if time.time() < begin_s + feed.provider.slot_s:
        return ""
    return f"{source}: the last slot with a value began at {format_time(begin_s)}"


def _make_signal(name: str, signal: SignalInput, known: Mapping[str, Any]) -> LiveSignal:
    values = [TimedValue(*row) for row in known["values"]]
    made = LiveSignal(name, known["unit"], known["slot_s"], values, signal.forecast)
    if signal.forecast is not None:
        if signal.forecast.needs_foresight:
            raise InputError(
                f"signals: the forecast {signal.forecast.kind} of {name} reads true values to "
                "come, which no live run knows: choose another one"
            )
        signal.forecast.check(name, made.slot_s, made.before)
    return made


def _last_since_s(log: EventLog, name: str, signal: LiveSignal) -> tuple[float, float]:
    """When the last slot with a value began, and with one that arrived, s of the run."""
    begun = {True: [signal.since_s], False: [signal.since_s]}
    for _, arrived in _arrivals(log, name):
        begun[arrived.fallback].append(arrived.since_s)
    answered_s = max(begun[False])
    return max(answered_s, *begun[True]), answered_s


def _arrivals(log: EventLog, name: str) -> Iterator[tuple[float, SignalArrived]]:
    """When the values of a signal arrived, s, and these, in order."""
    for external in log.events():
        arrived = external.event
        if isinstance(arrived, SignalArrived) and arrived.name == name:
            yield external.time_s, arrived


def _naming(name: str, tell: Tell) -> Tell:
    """Tells lines with the name of a signal."""
    return lambda line: tell(f"signal {name}: {line}")


def _poster(env: LiveEnvironment, name: str, begun_s: float) -> Post:
    def post(reading: SlotValue, is_fallback: bool) -> None:
        since_s = reading.begin_s - begun_s
        arrived = SignalArrived(name, since_s, reading.value, is_fallback)
        env.post(ExternalEvent(env.wall.now_s(), "", 0, "", arrived))

    return post


def describe_arrivals(spec: RunSpec, inputs: RunInputs, folder: Path) -> Iterator[ArrivedSignal]:
    """What arrived in a run that has ended, by signal; `folder` is that of all live runs."""
    names = [name for name, signal in inputs.signals.items() if signal.source is not None]
    if not names:
        return
    with closing(EventLog(log_path(spec, folder))) as log:
        for name in names:
            source = inputs.signals[name].source
            known = json.loads(log.get(f"signal {name}") or "null")
            assert source is not None
            assert known is not None
            arrivals = list(_arrivals(log, name))
            ending = _ending(log, name)
            late_s = -(known["values"][-1][0] + known["slot_s"])
            yield {
                "variant": spec.variant.name,
                "seed": spec.seed,
                "name": name,
                "source": known["source"],
                "values": sum(not arrived.fallback for _, arrived in arrivals),
                "fallback": source.fallback,
                "fallbacks": count_slots_without(known, arrivals, ending["until_s"]),
                "late_s": max(0.0, late_s),
                "failures": ending["failures"],
                "problem": ending["problem"],
            }


def count_slots_without(
    known: Mapping[str, Any], arrivals: Iterable[tuple[float, SignalArrived]], until_s: float
) -> int:
    """Slots of a run that were over before their value arrived.

    The first one of a run counts, too, if the fallback stood in for it at the beginning.
    """
    slot_s, first_s = float(known["slot_s"]), float(known["values"][-1][0])
    came_s: dict[int, float] = {}
    for time_s, arrived in arrivals:
        if not arrived.fallback:
            came_s.setdefault(round((arrived.since_s - first_s) / slot_s), time_s)
    earliest = max(1, math.floor(-first_s / slot_s))
    over = range(earliest, math.floor((until_s - first_s) / slot_s))
    late = sum(came_s.get(slot, math.inf) > first_s + (slot + 1) * slot_s for slot in over)
    return late + bool(known["fallback"])


def _ending(log: EventLog, name: str) -> dict[str, Any]:
    """Until when values of a signal were asked for, and what failed, over all parts of a run."""
    text = log.get(f"signal {name} end") or '{"until_s": 0, "failures": 0, "problem": ""}'
    return dict(json.loads(text))


def log_path(spec: RunSpec, folder: Path) -> Path:
    """The log of a run."""
    return folder / file_name(spec.variant.name) / str(spec.seed) / "log.sqlite"

"""Asks for the values of a live signal: with a cache, and less often while there is no answer."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wattkeeper.live.signals.http import NoAnswer
from wattkeeper.live.signals.providers import HISTORY_S, Provider, SlotValue
from wattkeeper.policies.errors import EnvironmentLacks, StoreError
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.private import make_private_folder, read_own_file
from wattkeeper.traces.files.user_dirs import state_folder

START_S: Final = 30.0
"""How long the first values of a run are waited for, s."""
SHORTEST_S: Final = 0.5
LONGEST_S: Final = 60.0
"""Bounds of the time until a service without a new value is asked again, s."""
MOST_BACK_OFF_S: Final = 900.0

Post = Callable[[SlotValue, bool], None]
"""Called with a new value, and whether it is the fallback."""
Tell = Callable[[str], None]
"""Called with a line that the user should know."""


class SignalFeed:
    """Asks a provider for new values in a thread, and posts them.

    A slot whose value has not come when it is over gets the fallback, if that is a number; else
    nothing is posted, and the last value holds on. A value that comes later is posted all the same.

    Args:
        provider: Where values come from.
        fallback: A value for slots without one; None: the last one holds on.

    Attributes:
        provider: As given.
        fallback: As given.
        problem: Why there was no answer at last; empty if there was one.
        failures: How many questions had no answer since the feed was started.
    """

    def __init__(self, provider: Provider, fallback: float | None) -> None:
        self.provider = provider
        self.fallback = fallback
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_s = self._answered_s = 0.0
        self._in_a_row = 0
        self._tell: Tell = lambda line: None
        self.failures = 0
        self.problem = ""

    def first(self) -> list[SlotValue]:
        """Values up to now, oldest first: from the cache if that has the present slot.

        Empty if there is no answer in time, and a number to fall back on.

        Raises:
            EnvironmentLacks: If there is no answer in time, and nothing to fall back on.
        """
        cached = self._load()
        if cached and self._is_present(cached):
            return cached
        until_s = time.monotonic() + START_S
        while True:
            try:
                readings = self._ask(self.provider.history)
                if not self._is_present(readings):
                    readings += self._ask(self.provider.latest)
            except EnvironmentLacks as error:
                self.problem = str(error)
                left_s = until_s - time.monotonic()
                wait_s = self._back_off_s(error)
                if left_s > wait_s and isinstance(error, NoAnswer):
                    time.sleep(wait_s)
                    continue
                if self.fallback is None:
                    raise
                return []
            by_time = {reading.begin_s: reading for reading in (*cached, *readings)}
            merged = [by_time[begin_s] for begin_s in sorted(by_time)]
            if not merged and self.fallback is None:
                raise EnvironmentLacks(f"{self.provider.identity}: no slot has begun yet")
            self.problem = ""
            self._save(merged)
            return merged

    def start(self, last_s: float, answered_s: float, post: Post, tell: Tell) -> None:
        """Post values from now on.

        Args:
            last_s: Begin of the last slot that has a value, s since 1970.
            answered_s: Begin of the last one whose value is not the fallback.
            post: Called in a thread with each new value.
            tell: Called there when answers begin or cease to fail.
        """
        earliest_s = time.time() - HISTORY_S
        self._last_s, self._answered_s = max(last_s, earliest_s), max(answered_s, earliest_s)
        self._tell = tell
        self._thread = threading.Thread(
            target=self._run, args=(post,), name="wattkeeper-signal", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._stop.set()

    def describe_fallback(self) -> str:
        """What holds while there is no answer, as text."""
        held = "the last value" if self.fallback is None else f"the fallback {self.fallback:g}"
        return f"{held} holds until a value arrives"

    def _run(self, post: Post) -> None:
        ask_s = time.time()
        while not self._stop.wait(max(0.0, min(ask_s, self._fallback_s()) - time.time())):
            if time.time() >= ask_s:
                ask_s = time.time() + self._ask_for_more(post)
            while time.time() >= self._fallback_s():
                assert self.fallback is not None
                self._last_s += self.provider.slot_s
                post(SlotValue(self._last_s, self.fallback), True)

    def _ask_for_more(self, post: Post) -> float:
        """Post what is new; return the time until the next question, s."""
        try:
            readings = self._ask(self.provider.latest)
        except Exception as error:  # the run continues without an answer, whatever the reason
            self.failures += 1
            if str(error) != self.problem:
                self.problem = str(error)
                self._tell(f"{self.problem}; {self.describe_fallback()}")
            return self._back_off_s(error)
        if self.problem:
            self.problem = ""
            self._tell(f"{self.provider.identity} answers again")
        new = [reading for reading in readings if reading.begin_s > self._answered_s]
        for reading in new:
            self._answered_s = reading.begin_s
            self._last_s = max(self._last_s, reading.begin_s)
            post(reading, False)
        if new:
            self._save([*self._load(), *new])
        slot_s = self.provider.slot_s
        shortest_s = min(max(slot_s / 10, SHORTEST_S), LONGEST_S)
        return max(shortest_s, self._last_s + slot_s - time.time()) if new else shortest_s

    def _fallback_s(self) -> float:
        """When the next slot without a value gets the fallback, s since 1970: at its end."""
        if self.fallback is None or not self.provider.slot_s > 0:
            return math.inf
        return self._last_s + 2 * self.provider.slot_s

    def _ask(self, what: Callable[[], list[SlotValue]]) -> list[SlotValue]:
        now_s = time.time()
        readings = [reading for reading in what() if reading.begin_s <= now_s]
        self._in_a_row = 0
        return readings

    def _back_off_s(self, error: Exception) -> float:
        """Twice as long after each failure, or as long as the service says."""
        self._in_a_row += 1
        stated_s = error.retry_s if isinstance(error, NoAnswer) else 0.0
        return max(stated_s, min(SHORTEST_S * 2.0**self._in_a_row, MOST_BACK_OFF_S))

    def _is_present(self, readings: list[SlotValue]) -> bool:
        return bool(readings) and time.time() < readings[-1].begin_s + self.provider.slot_s

    def _cache(self) -> Path:
        name = hashlib.sha256(self.provider.identity.encode()).hexdigest()[:32]
        return state_folder() / "signals" / f"{name}.json"

    def _load(self) -> list[SlotValue]:
        if not self.provider.is_cached:
            return []
        try:
            rows = json.loads(read_own_file(self._cache()))["readings"]
            readings = [SlotValue(float(begin_s), float(value)) for begin_s, value in rows]
        except (OSError, ValueError, KeyError, TypeError, StoreError):
            return []
        return [reading for reading in readings if reading.begin_s <= time.time()]

    def _save(self, readings: list[SlotValue]) -> None:
        if not self.provider.is_cached:
            return
        since_s = time.time() - HISTORY_S
        recent = [reading for reading in readings if reading.begin_s >= since_s]
        try:
            make_private_folder(self._cache().parent)
            with replace_file(self._cache(), private=True) as fresh:
                fresh.write_text(json.dumps({"readings": recent}), encoding="ascii")
        except (OSError, StoreError):
            return  # without the cache, it is asked more often

"""Checkpoints of a training: what they cost, and what a loss costs since the last one."""

from __future__ import annotations

import math
from typing import Final, NamedTuple


class CheckpointRule(NamedTuple):
    """When a training writes checkpoints.

    Attributes:
        every_s: Training time from the begin of one to that of the next, s; infinite: it writes
            none by itself.
        write_s: Time to write one, s; infinite: it cannot write any.
        blocking: Whether nothing is trained meanwhile. If it is not, a checkpoint holds what was
            done when its write began.
    """

    every_s: float = math.inf
    write_s: float = math.inf
    blocking: bool = True


NO_CHECKPOINTS: Final = CheckpointRule()

FEW: Final = 64
"""So many spans that were not saved are kept before those that a checkpoint saved are dropped."""


class TrainingSpan(NamedTuple):
    """Training at one pace and power.

    Attributes:
        time_s: Its time at full pace, s.
        power_w: Its power, W.
        pace: Two numbers by which the execution counts its work, as that knows them.
    """

    time_s: float
    power_w: float
    pace: tuple[float, float]

    @property
    def energy_j(self) -> float:
        """Its energy, J."""
        return self.time_s * self.power_w


class CheckpointClock:
    """The checkpoints of an attempt over time, in closed form: none of them is an event.

    Args:
        rule: When they are written.

    Attributes:
        since_s: Training since the last one was begun, s.
        writing_s: What is left of a blocking write, s.
        before_s: Training from the last complete one to the begin of one that is being written.
    """

    def __init__(self, rule: CheckpointRule) -> None:
        self._rule = rule
        self.since_s = 0.0
        self.writing_s = 0.0
        self.before_s = 0.0
        self._spans: list[TrainingSpan] = []  # the last of them were not saved
        self._most_spans = FEW

    def save(self) -> None:
        """Count all that was trained as saved."""
        self.since_s = self.writing_s = self.before_s = 0.0
        self._spans.clear()

    def begin_write(self) -> None:
        """Begin to write one now, unless none are written or one is being written."""
        rule = self._rule
        if math.isinf(rule.write_s) or self.writing_s or self.before_s:
            return
        if rule.blocking:
            self.writing_s = rule.write_s
            if not rule.write_s:
                self.since_s = 0.0
        elif rule.write_s:
            self.before_s, self.since_s = self.since_s, 0.0
        else:
            self.since_s = 0.0

    @property
    def unsaved_s(self) -> float:
        """Training since the last complete checkpoint, s."""
        return self.since_s + self.before_s

    def unsaved(self) -> list[TrainingSpan]:
        """Training since the last complete checkpoint, by pace, in its order."""
        left_s, unsaved = self.unsaved_s, list[TrainingSpan]()
        for index in range(len(self._spans) - 1, -1, -1):
            if left_s <= 0:
                break
            span = self._spans[index]
            if index == 0 or span.time_s > left_s:
                span = span._replace(time_s=left_s)
            unsaved.append(span)
            left_s -= span.time_s
        unsaved.reverse()
        return unsaved

    def span_s(self, training_s: float) -> float:
        """How long a training takes with the checkpoints that fall into it, s.

        None is written at its very end.
        """
        rule = self._rule
        if not rule.blocking or math.isinf(rule.write_s):
            return training_s
        if math.isinf(rule.every_s):
            return self.writing_s + training_s
        left_s = rule.every_s - self.since_s
        if self.writing_s:
            left_s = rule.every_s
        writes = max(0, math.ceil((training_s - left_s) / rule.every_s))
        return self.writing_s + training_s + writes * rule.write_s

    def advance(self, span_s: float, power_w: float, pace: tuple[float, float]) -> float:
        """Let time pass, s, at a power (W) and a pace; returns how much of it was training."""
        rule = self._rule
        if math.isinf(rule.write_s):
            self.since_s += span_s
            trained_s = span_s
        elif rule.blocking:
            trained_s = self._write_between(span_s)
        else:
            trained_s = self._write_beside(span_s)
        if trained_s > 0:
            self._note(TrainingSpan(trained_s, power_w, pace))
        return trained_s

    def _note(self, span: TrainingSpan) -> None:
        """Note a span of training as the last one."""
        spans = self._spans
        if spans:
            last = spans[-1]
            if last.power_w == span.power_w and last.pace == span.pace:
                spans[-1] = span._replace(time_s=last.time_s + span.time_s)
                return
        spans.append(span)
        if len(spans) > self._most_spans:
            self._spans = self.unsaved()
            self._most_spans = max(FEW, 2 * len(self._spans))

    def _write_beside(self, span_s: float) -> float:
        every_s, write_s = self._rule.every_s, self._rule.write_s
        since_s = self.since_s + span_s
        if since_s >= every_s:
            begun = math.floor(since_s / every_s)
            since_s -= begun * every_s
            self.before_s = every_s
        if since_s >= write_s:
            self.before_s = 0.0
        self.since_s = since_s
        return span_s

    def _write_between(self, span_s: float) -> float:
        every_s, write_s = self._rule.every_s, self._rule.write_s
        if self.writing_s:
            if span_s < self.writing_s:
                self.writing_s -= span_s
                return 0.0
            span_s -= self.writing_s
            self.writing_s = self.since_s = 0.0
        left_s = every_s - self.since_s
        if span_s < left_s:
            self.since_s += span_s
            return span_s
        span_s -= left_s
        cycles = math.floor(span_s / (write_s + every_s))
        span_s -= cycles * (write_s + every_s)
        training_s = left_s + cycles * every_s
        if span_s < write_s:
            self.since_s, self.writing_s = every_s, write_s - span_s
            return training_s
        self.since_s = span_s - write_s
        return training_s + self.since_s

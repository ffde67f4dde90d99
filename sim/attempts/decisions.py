"""Asks policies about an attempt: the one path of simulated runs, live runs and sessions.

`DecisionMaker.decide` asks `Configure`, and `Tune` where the configuration leaves the power limit
open; the answer is `Tuned`, or `Untuned` if `Tune` wants power limits measured first, or a slice.
Then `DecisionMaker.tune` passes on what was measured. Once the attempt ended, `Tuned.outcome` makes
the `Outcome` for `Host.observe`. The decided attempts are immutable values, so that a caller may
keep them in memory or restore them from a store.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Configuration, Knobs, Measurement, Running, Start
from wattkeeper.policies.profile import UNLIMITED_W
from wattkeeper.sim.attempts.decided import Decision, Tuned, Untuned
from wattkeeper.sim.attempts.validation import (
    check_configuration,
    check_knobs,
    check_later_knobs,
    check_parents,
    check_types_of_configuration,
    check_types_of_knobs,
)
from wattkeeper.sim.kernel.hosting import BoundPolicy
from wattkeeper.sim.kernel.journal import DecisionJournal

if TYPE_CHECKING:
    from wattkeeper.policies.registry import Point


class DecisionMaker:
    """Asks the policies of a run about attempts.

    Args:
        configure: The `Configure` policy.
        tune: The `Tune` policy.
        journal: Takes down their decisions.
        notes_parents: Whether `Configure` sets parents, which the journal shows then.
    """

    def __init__(
        self,
        configure: BoundPolicy,
        tune: BoundPolicy,
        journal: DecisionJournal,
        notes_parents: bool = False,
    ) -> None:
        self._configure: Configure = configure.policy
        self._configure_ctx = configure.ctx
        self._checks_configure = configure.is_foreign
        self._tune: Tune = tune.policy
        self._tune_ctx = tune.ctx
        self._checks_tune = tune.is_foreign
        self._journal = journal
        self._notes_parents = notes_parents

    def decide(self, start: Start) -> Decision:
        """Ask how an attempt shall run, and at which power limit or with which to be measured.

        Raises:
            PolicyError: If a policy chose what is not allowed; the message says what is.
        """
        configuration = self._ask_configure(start)
        batch_size, limit_w, bound = configuration[:3]
        limit = "" if limit_w == UNLIMITED_W else f" power_limit_w={limit_w}"
        chose = f"batch_size={batch_size}{limit} cost_bound={bound!r}"
        if configuration.clock_mhz:
            chose += f" clock_mhz={configuration.clock_mhz}"
        if self._notes_parents:
            chose += f" {_format_parent(configuration)}"
        saw: tuple[object, ...] = (start.options.key, start.group_in_flight)
        if start.waiting:
            saw = (*saw, start.waiting)
        self._note(self._configure_ctx, "configure", start, saw, chose)
        check_configuration(start, configuration)
        check_parents(start.job, configuration, self._configure_ctx.trial)
        if limit_w is not None:
            knobs = Knobs(limit_w, clock_mhz=configuration.clock_mhz or None)
            return Tuned(start, configuration, limit_w, False, knobs)
        return self._choose_first(Running(start, configuration))

    def choose_parent(self, start: Start) -> Configuration:
        """Ask for the parent of a job without a workload: there is nothing else to choose.

        Raises:
            PolicyError: If the time that the choice takes is not finite.
        """
        configuration = self._ask_configure(start)
        chose = _format_parent(configuration)
        self._note(self._configure_ctx, "configure", start, (start.options.key,), chose)
        check_parents(start.job, configuration, self._configure_ctx.trial)
        return configuration

    def settle_parent(self, decision: Decision, parent: str) -> Decision:
        """The decision once a trial of parents left one, which the journal shows."""
        asked, chose = decision.configuration, f"tried: parent={parent}"
        self._note(self._configure_ctx, "configure", decision.start, asked.parents, chose)
        return decision.with_configuration(asked._replace(parent=parent, trial=None))

    def tune(self, attempt: Untuned, report: tuple[Measurement, ...]) -> Decision:
        """Ask `Tune` for the power limit, given what was measured now.

        After a slice, it may ask for another one instead.

        Raises:
            PolicyError: If it chose what is not allowed; the message says what is.
        """
        measured = attempt.measured + report
        return self._choose_first(
            Running(attempt.start, attempt.configuration, measured, "profiled")
        )

    def choose_limit(self, start: Start) -> Knobs:
        """Ask `Tune` for the knobs of a job without a workload, with a power limit.

        Raises:
            PolicyError: If it chose what is not allowed; the message says what is.
        """
        configuration = Configuration(start.options.default_batch_size)
        return self._ask_first(Running(start, configuration), final=True)

    def retune(self, running: Running) -> Knobs | None:
        """Ask `Tune` at a moment after the start; None if nothing changes.

        Raises:
            PolicyError: If it chose what is not allowed; the message says what is.
        """
        start = running.start
        knobs = self._ask_tune(running)
        chose = "nothing" if knobs is None else _format_knobs(knobs)
        saw = (start.options.key, *running[1:])
        self._note(self._tune_ctx, "tune", start, saw, f"{running.moment}: {chose}")
        if knobs is not None:
            check_later_knobs(running, knobs, self._tune_ctx.slices, self._tune_ctx.now_s)
        return knobs

    def repeat(self, lost: Decision) -> Decision:
        """Decide on the next attempt of a job as on one that was lost to an accident.

        `Tune` is asked again if no power limit was chosen for that one.

        Raises:
            PolicyError: If it chose what is not allowed; the message says what is.
        """
        start = lost.start._replace(attempt=lost.start.attempt + 1)
        if isinstance(lost, Tuned):
            return Tuned(start, lost.configuration, lost.power_limit_w, lost.profiled, lost.knobs)
        return self._choose_first(Running(start, lost.configuration))

    def _ask_configure(self, start: Start) -> Configuration:
        try:
            configuration = self._configure.configure(self._configure_ctx, start)
            if self._checks_configure:
                check_types_of_configuration(configuration)
        except BaseException as error:
            about, method = f"job {start.job.job_id}", self._configure.configure
            raise self._configure_ctx.explain_failure(error, method, about) from None
        return configuration

    def _choose_first(self, running: Running) -> Decision:
        start, configuration, measured = running[:3]
        knobs = self._ask_first(running)
        if knobs.power_limit_w is not None:
            return Tuned(start, configuration, knobs.power_limit_w, bool(measured), knobs)
        return Untuned(
            start, configuration, knobs.profile_w, knobs.profile_mhz, knobs.slice, measured
        )

    def _ask_first(self, running: Running, *, final: bool = False) -> Knobs:
        start, measured = running.start, running.measured
        batch_size = running.configuration.batch_size
        knobs = self._ask_tune(running)
        if knobs is None:
            raise PolicyError(
                f"{start.job.job_id}: Tune answers with knobs at the start, found None", "tune"
            )
        saw = (start.options.key, batch_size, measured)
        self._note(self._tune_ctx, "tune", start, saw, _format_knobs(knobs))
        may_slice = self._tune_ctx.slices and (not measured or measured[-1].batch_size > 0)
        may_profile = not (final or measured)
        now_s = self._tune_ctx.now_s
        check_knobs(start, batch_size, knobs, may_profile, may_slice and not final, now_s)
        waits = knobs.run != "go" or knobs.wake_s != math.inf
        if waits and not self._tune_ctx.is_asked_later:
            raise PolicyError(
                f"{start.job.job_id}: Tune answers with run={knobs.run!r} and wake_s="
                f"{knobs.wake_s:g} at the start, and is never asked again: its config names no "
                "moment (`moments`) besides the start",
                "tune",
            )
        return knobs

    def _ask_tune(self, running: Running) -> Knobs | None:
        try:
            knobs = self._tune.tune(self._tune_ctx, running)
            if self._checks_tune and knobs is not None:
                check_types_of_knobs(knobs)
        except BaseException as error:
            about = f"job {running.start.job.job_id}"
            raise self._tune_ctx.explain_failure(error, self._tune.tune, about) from None
        return knobs

    def _note(
        self, ctx: Context, point: Point, start: Start, saw: tuple[object, ...], chose: str
    ) -> None:
        self._journal.note(ctx.now_s, point, start.job.number, start.attempt, saw, chose)


def _format_parent(configuration: Configuration) -> str:
    text = f"parent={configuration.parent} query_s={configuration.query_s:g}"
    if configuration.trial is None:
        return text
    rivals, epochs = configuration.trial
    return f"{text} rivals={','.join(rivals)} trial_epochs={epochs}"


def format_pace(knobs: Knobs) -> str:
    """The pace of knobs as the journal has it; `UNLIMITED_W` is no limit, and is left out."""
    limit_w, clock_mhz, plan = knobs.power_limit_w, knobs.clock_mhz, knobs.plan
    parts = []
    if limit_w is not None and limit_w != UNLIMITED_W:
        parts.append(f"power_limit_w={limit_w}")
    if clock_mhz is not None:
        parts.append(f"clock_mhz={clock_mhz}")
    if plan is not None:
        parts.append(f"plan={'|'.join(','.join(map(str, clocks)) for clocks in plan)}")
    return " ".join(parts)


def _format_knobs(knobs: Knobs) -> str:
    """Knobs as the journal has them."""
    _, profile_w, _, _, run, wake_s, profile_mhz, piece = knobs
    parts = []
    if piece is not None:
        size = piece.batch_size
        parts.append(f"slice_w={piece.power_limit_w}")
        parts += [] if size is None else [f"slice_batch_size={size}"]
    if profile_w:
        limits = [limit_w for limit_w in profile_w if limit_w != UNLIMITED_W]
        parts.append(f"profile_w={limits}")
    if profile_mhz:
        parts.append(f"profile_mhz={list(profile_mhz)}")
    pace = format_pace(knobs)
    if pace:
        parts.append(pace)
    if run != "go":
        parts.append(f"run={run}")
    if wake_s != math.inf:
        parts.append(f"wake_s={wake_s!r}")
    return " ".join(parts) or "go"

"""What the world refuses of a policy's choice.

Functions whose names begin with `check_types` raise a `TypeError`, as compiled code does where it
uses a value of another type than it was annotated with.
"""

import math
from typing import Any, cast

from wattkeeper.policies.errors import PolicyError, cut_message
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.select import Selection
from wattkeeper.policies.points.views import (
    NO_KNOBS,
    Configuration,
    Knobs,
    Options,
    ParentTrial,
    Running,
    Slice,
    Start,
    TrialKind,
)
from wattkeeper.policies.profile import MOST_LIMITS
from wattkeeper.policies.registry import Point


def check_configuration(start: Start, configuration: Configuration) -> None:
    """Refuse a batch size or power limit without a profile, a negative bound, an endless query.

    Raises:
        PolicyError: The message says what is allowed.
    """
    options = start.options
    options.check_batch_size(configuration.batch_size, start.job.job_id)
    if not configuration.cost_bound >= 0:
        raise PolicyError(
            f"cost bound {configuration.cost_bound} J was chosen for {start.job.job_id}; it must "
            "be at least 0",
            "configure",
        )
    if configuration.power_limit_w is not None:
        _check_limit(options, configuration.batch_size, configuration.power_limit_w, "configure")
    if configuration.clock_mhz:
        clock_mhz, limit_w = configuration.clock_mhz, configuration.power_limit_w
        if limit_w is None:
            raise PolicyError(
                f"a clock of {clock_mhz} MHz was chosen for {start.job.job_id} without a power "
                "limit; the highest one goes with it",
                "configure",
            )
        _check_clock(start, configuration.batch_size, clock_mhz, limit_w, "configure")


def check_parents(job: Job, configuration: Configuration, declared: TrialKind) -> None:
    """Refuse a query that takes no time that can pass, and trials that were not declared.

    `declared`: the trials that the policy's config says that it asks for.

    Raises:
        PolicyError: It shows what was found.
    """
    query_s, trial = configuration.query_s, configuration.trial
    if trial is not None:
        _check_trial(job, configuration.parents, trial.epochs, declared)
    if not 0 <= query_s < math.inf:
        raise PolicyError(
            f"a query of {query_s} s was chosen for {job.job_id}; it must be finite and at least 0",
            "configure",
        )


def _check_trial(job: Job, parents: tuple[str, ...], epochs: int, declared: TrialKind) -> None:
    if declared == "none" or (epochs and declared == "evaluated"):
        raise PolicyError(
            f"{job.job_id}: a trial of parents for {epochs} epochs was asked for; the policy's "
            f"config declares {declared} (`trial`)",
            "configure",
        )
    if len(parents) < 2 or len({*parents}) < len(parents) or epochs < 0:
        raise PolicyError(
            f"{job.job_id}: a trial is of a parent and other ones, for 0 epochs or more; found "
            f"{', '.join(parents) or 'none'} for {epochs}",
            "configure",
        )


def check_knobs(
    start: Start, batch_size: int, knobs: Knobs, may_profile: bool, may_slice: bool, now_s: float
) -> None:
    """Refuse an answer that is not one of limit, profile and slice, and limits without a profile.

    Args:
        start: The attempt.
        batch_size: Its batch size.
        knobs: The answer.
        may_profile: Whether a profile can be asked for.
        may_slice: Whether a slice can be asked for.
        now_s: The time, s.

    Raises:
        PolicyError: The message says what is allowed.
    """
    profile, piece = knobs.profile_w or knobs.profile_mhz, knobs.slice
    given = (knobs.power_limit_w is not None) + bool(profile) + (piece is not None)
    if given != 1 or (profile and not may_profile) or (piece is not None and not may_slice):
        raise PolicyError(
            f"{start.job.job_id}: Tune answers either a power limit or, before profiling, a "
            "profile, or, if its config says that it does (`slices`), a slice before or after "
            f"other slices; found {knobs}",
            "tune",
        )
    if piece is not None:
        if piece.batch_size not in (None, batch_size):
            raise PolicyError(
                f"{start.job.job_id}: at the start, slices are of the attempt's batch size, "
                f"{batch_size}; found {piece.batch_size}",
                "tune",
            )
        _check_slice(start, batch_size, knobs)
        return
    for limit_w in knobs.profile_w if profile else (knobs.power_limit_w,):
        _check_limit(start.options, batch_size, cast("float", limit_w), "tune")
    for clock_mhz in knobs.profile_mhz:
        _check_clock(start, batch_size, clock_mhz, None, "tune")
    _check_clocks(start, batch_size, knobs)
    _check_run(start, knobs, now_s)
    others = knobs._replace(profile_w=(), profile_mhz=()) if profile else NO_KNOBS
    if knobs.run == "stop" or others != NO_KNOBS:
        raise PolicyError(
            f"{start.job.job_id}: at the start, Tune can neither stop an attempt nor give other "
            f"knobs with a profile; found {knobs}",
            "tune",
        )


def check_later_knobs(running: Running, knobs: Knobs, may_slice: bool, now_s: float) -> None:
    """Refuse what cannot be changed after the start, and power limits without a profile.

    `may_slice`: whether the policy may ask for slices.

    Raises:
        PolicyError: The message says what is allowed.
    """
    start, piece = running.start, knobs.slice
    if running.moment == "reached" or piece is not None:
        if running.moment != "reached" or piece is None or piece.batch_size is None:
            raise PolicyError(
                f"{start.job.job_id}: once the target was reached, and then alone, Tune answers "
                f"a slice with its batch size, or None; found {knobs} at {running.moment}",
                "tune",
            )
        if not may_slice:
            raise PolicyError(
                f"{start.job.job_id}: a slice was asked for; the policy's config does not say "
                "that it does so (`slices`)",
                "tune",
            )
        start.options.check_batch_size(piece.batch_size, start.job.job_id)
        _check_slice(start, piece.batch_size, knobs)
        return
    if knobs.profile_w or knobs.profile_mhz:
        raise PolicyError(
            f"{start.job.job_id}: power limits are profiled at the start, not at {running.moment}; "
            f"found {knobs}",
            "tune",
        )
    batch_size = running.configuration.batch_size
    if knobs.power_limit_w is not None:
        _check_limit(start.options, batch_size, knobs.power_limit_w, "tune")
    _check_clocks(start, batch_size, knobs)
    _check_run(start, knobs, now_s)


def _check_slice(start: Start, batch_size: int, knobs: Knobs) -> None:
    """Refuse a slice with other knobs, without a profile, or of no length."""
    piece, options = cast("Slice", knobs.slice), start.options
    if knobs != Knobs(slice=piece):
        raise PolicyError(
            f"{start.job.job_id}: other knobs cannot be chosen with a slice; found {knobs}", "tune"
        )
    _check_limit(options, batch_size, piece.power_limit_w, "tune")
    if not (piece.warm_steps >= 0 and piece.steps >= 1 and 0 <= piece.least_s < math.inf):
        raise PolicyError(
            f"{start.job.job_id}: a slice has at least 0 warm_steps, 1 step, and a finite least_s "
            f"of at least 0; found {piece}",
            "tune",
        )
    if not options.samples_per_epoch > 0:
        raise PolicyError(
            f"{start.job.job_id}: a slice was asked for; the profile of {options.key} does not say "
            "how many samples an epoch has (samples_per_epoch)",
            "tune",
        )


def _check_clocks(start: Start, batch_size: int, knobs: Knobs) -> None:
    if knobs.plan is None and knobs.clock_mhz is None:
        return
    job_id, task = start.job.job_id, start.options.pipeline
    if task is None:
        if knobs.plan is not None or knobs.clock_mhz is None:
            raise PolicyError(
                f"{job_id}: a plan was chosen for {start.options.key}, which is not "
                "pipeline-parallel; there are power limits and locked clocks",
                "tune",
            )
        _check_clock(start, batch_size, knobs.clock_mhz, knobs.power_limit_w, "tune")
        return
    if knobs.plan is not None and knobs.clock_mhz is not None:
        raise PolicyError(
            f"{job_id}: found a plan and a clock of {knobs.clock_mhz} MHz; one of them is allowed",
            "tune",
        )
    try:
        task.execute(knobs.plan, knobs.clock_mhz)
    except PolicyError as error:
        raise PolicyError(f"{job_id}: {error}", "tune") from None


def _check_clock(
    start: Start, batch_size: int, clock_mhz: int, limit_w: float | None, point: Point
) -> None:
    """Refuse a locked clock without a profile, or with another limit (W) than the highest."""
    options = start.options
    clocks = options.clocks(batch_size)
    if options.pipeline is not None or clock_mhz not in clocks:
        there = f"{', '.join(map(str, clocks))} MHz" if clocks else "power limits alone"
        raise PolicyError(
            f"{start.job.job_id}: clocks of {clock_mhz} MHz were chosen for {options.key} at batch "
            f"size {batch_size}, which has no profile of them; there is {there}",
            point,
        )
    highest_w = options.limits(batch_size)[-1]
    if limit_w is not None and limit_w != highest_w:
        raise PolicyError(
            f"{start.job.job_id}: clocks of {clock_mhz} MHz were chosen at {limit_w:g} W; they are "
            f"profiled at the highest power limit, {highest_w:g} W",
            point,
        )


def _check_run(start: Start, knobs: Knobs, now_s: float) -> None:
    if knobs.run not in ("go", "pause", "stop"):
        raise PolicyError(
            f"{start.job.job_id}: run is go, pause or stop; found {knobs.run!r}", "tune"
        )
    check_wake(knobs.wake_s, now_s, "tune")


def _check_limit(options: Options, batch_size: int, limit_w: float, point: Point) -> None:
    limits = options.limits(batch_size)
    if limit_w not in limits:
        raise PolicyError(
            f"power limit {limit_w:g} W was chosen for {options.key} at batch size {batch_size}, "
            f"which has no profile of it; there is {options.limits_text(limits)}",
            point,
        )


def check_wake(wake_s: float, now_s: float, point: Point) -> None:
    """Refuse to be woken at a time that is not to come.

    Raises:
        PolicyError: It shows both.
    """
    _check_type(wake_s, (int, float), "float", "wake_s")
    if not wake_s > now_s:
        text = f"the {point} policy wants to be woken at {wake_s} s; it is {now_s} s"
        raise PolicyError(text, point)


def check_types_of_configuration(answer: Any) -> None:
    """Refuse what is no `Configuration`, or has fields of other types."""
    _check_type(answer, Configuration, "Configuration")
    _check_type(answer.batch_size, int, "int", "batch_size")
    if answer.power_limit_w is not None:
        _check_type(answer.power_limit_w, (int, float), "float", "power_limit_w")
    _check_type(answer.cost_bound, (int, float), "float", "cost_bound")
    if answer.parent is not None:
        _check_type(answer.parent, str, "str", "parent")
    _check_type(answer.query_s, (int, float), "float", "query_s")
    _check_type(answer.clock_mhz, int, "int", "clock_mhz")
    if answer.trial is not None:
        _check_type(answer.trial, ParentTrial, "ParentTrial", "trial")
        _check_type(answer.trial.epochs, int, "int", "trial")
        _check_type(answer.trial.rivals, tuple, "tuple", "trial")
        for rival in answer.trial.rivals:
            _check_type(rival, str, "str", "trial")


def check_types_of_knobs(answer: Any) -> None:
    """Refuse what is no `Knobs`, or has fields of other types."""
    _check_type(answer, Knobs, "Knobs")
    if answer.power_limit_w is not None:
        _check_type(answer.power_limit_w, (int, float), "float", "power_limit_w")
    _check_type(answer.profile_w, tuple, "tuple", "profile_w")
    if len(answer.profile_w) > MOST_LIMITS:
        raise PolicyError(
            f"Tune asks for a profile of {len(answer.profile_w):,} power limits; at most "
            f"{MOST_LIMITS:,}",
            "tune",
        )
    for limit_w in answer.profile_w:
        _check_type(limit_w, (int, float), "float", "profile_w")
    _check_type(answer.profile_mhz, tuple, "tuple", "profile_mhz")
    for clock_mhz in answer.profile_mhz:
        _check_type(clock_mhz, int, "int", "profile_mhz")
    if answer.clock_mhz is not None:
        _check_type(answer.clock_mhz, int, "int", "clock_mhz")
    if answer.plan is not None:
        _check_type(answer.plan, tuple, "tuple", "plan")
        for clocks in answer.plan:
            _check_type(clocks, tuple, "tuple", "plan")
            for clock_mhz in clocks:
                _check_type(clock_mhz, int, "int", "plan")
    _check_type(answer.run, str, "str", "run")
    _check_type(answer.wake_s, (int, float), "float", "wake_s")
    if answer.slice is not None:
        _check_types_of_slice(answer.slice)


def _check_types_of_slice(answer: Any) -> None:
    _check_type(answer, Slice, "Slice", "slice")
    _check_type(answer.power_limit_w, (int, float), "float", "power_limit_w")
    if answer.batch_size is not None:
        _check_type(answer.batch_size, int, "int", "batch_size")
    _check_type(answer.warm_steps, int, "int", "warm_steps")
    _check_type(answer.steps, int, "int", "steps")
    _check_type(answer.least_s, (int, float), "float", "least_s")


def check_types_of_selection(answer: Any) -> None:
    """Refuse what is no `Selection` of jobs."""
    _check_type(answer, Selection, "Selection")
    for name, jobs in (("start", answer.start), ("preempt", answer.preempt)):
        _check_type(jobs, tuple, "tuple", name)
        for job in jobs:
            _check_type(job, Job, "Job", name)


def check_types_of_placement(answer: Any) -> None:
    """Refuse what is no tuple of slots."""
    _check_type(answer, tuple, "tuple")
    for slot in answer:
        _check_type(slot, tuple, "tuple", "a slot")
        if len(slot) != 3:
            raise TypeError(f"a slot is (node, GPUs, index of the GPU), found {slot!r}")
        for number in slot:
            _check_type(number, int, "int", "a slot")


def _check_type(
    value: object, allowed: type | tuple[type, ...], name: str, where: str = ""
) -> None:
    of = f"{where} must be " if where else ""
    if isinstance(value, int) and value.bit_length() > 63:
        raise TypeError(f"{of}{name}, found a whole number of {value.bit_length()} bits")
    if not isinstance(value, allowed) or isinstance(value, bool):
        raise TypeError(f"{of}{name}, found {type(value).__name__} {cut_message(repr(value), 100)}")

"""Variants that options of a study ask for: hours without jobs, placement, limits of GPUs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.policies.parts import parts
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.scenarios.log_study.nodes import ASSUMED_PREEMPTION, DescribedCluster
from wattkeeper.scenarios.spec.loading import validate
from wattkeeper.scenarios.spec.sections.section import Section
from wattkeeper.scenarios.spec.variants import DEFAULTS
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.scenarios.spec.yaml_document import read
from wattkeeper.traces.times.origin import origin_of
from wattkeeper.traces.times.zones import find_zone
from wattkeeper.traces.trace import Trace

HOURS: Final = re.compile(r"(([01]\d|2[0-3]):([0-5]\d))-(([01]\d|2[0-3]):([0-5]\d))")
DAYS: Final = 366
"""Days that a file of hours has; it repeats after a year."""
NO_CAP_W: Final = 1e9
"""A power cap that no job meets, W."""
PAUSES: Final = "pause"
"""Folder of the files of hours, in that of the study."""

Limit = Annotated[int, Field(gt=0)]


class Quotas(Section):
    """Limits of the GPUs that jobs hold at one time."""

    queues: dict[str, Limit] = Field(default_factory=dict)
    """Of all jobs of a queue (partition), by its name."""
    users: dict[str, Limit] = Field(default_factory=dict)
    """Of all jobs of a user, by name."""
    each_user: Limit | None = None
    """Of all jobs of each user that `users` does not name."""


class AskedOptions(NamedTuple):
    """What options of the command ask for, checked.

    Attributes:
        pauses: Begin and end of hours in which no job runs.
        places: Placement policies.
        quotas: Limits of GPUs; None: there are none.
    """

    pauses: Sequence[tuple[time, time]] = ()
    places: Sequence[str] = ()
    quotas: Quotas | None = None


NOTHING_ASKED: Final = AskedOptions()


class AskedVariant(NamedTuple):
    """A variant that an option asks for.

    Attributes:
        name: Its name.
        why: What it is, in lines.
        keys: Its keys in the scenario.
        signals: Signals that it follows, by name, as the scenario states them.
        files: Texts of the files of these, by their path in the folder of the study.
    """

    name: str
    why: Sequence[str]
    keys: Mapping[str, Any]
    signals: Mapping[str, Any] = {}
    files: Mapping[str, str] = {}


def read_asked(pauses: Sequence[str], places: Sequence[str], quotas: Sequence[str]) -> AskedOptions:
    """Check the options, as far as that is possible without the log.

    Args:
        pauses: Hours, as `22:00-06:00`.
        places: Names of placement policies.
        quotas: `QUEUE=GPUS`, or one file of `Quotas`.

    Raises:
        InputError: If any is wrong or would change nothing, with all faults.
    """
    faults: list[Problem] = []
    hours = []
    for text in dict.fromkeys(pauses):
        found = HOURS.fullmatch(text)
        if found is None or found[1] == found[4]:
            faults.append(
                Problem(f"found {text!r}; must be two times of day, as 22:00-06:00", "--pause")
            )
            continue
        hours.append((time.fromisoformat(found[1]), time.fromisoformat(found[4])))
    known = parts("place")
    for name in places:
        if name not in known:
            what = f"there is no placement policy {name!r}{did_you_mean(name, known)}"
            faults.append(Problem(f"{what}; there are {', '.join(known)}", "--place"))
        elif name == DEFAULTS["place"]:
            faults.append(
                Problem(f"{name} is how all variants place jobs: leave it out", "--place")
            )
    stated = None
    try:
        stated = _read_quotas(quotas)
    except InputError as error:
        faults += error.problems
    if faults:
        raise InputError(faults)
    return AskedOptions(hours, [*dict.fromkeys(places)], stated)


def _read_quotas(texts: Sequence[str]) -> Quotas | None:
    """Limits of queues, or a file."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        path = Path(texts[0])
        if not path.is_file():
            raise InputError(
                [Problem(f"found {texts[0]!r}; must be QUEUE=GPUS or a file", "--quota")]
            )
        document = read(path)
        quotas = validate(Quotas, document, document.data)
        if quotas == Quotas():
            raise InputError("states no limit: queues, users or each_user", path)
        return quotas
    queues: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or name in queues or not number.isdecimal() or not int(number):
            raise InputError(
                [
                    Problem(
                        f"found {text!r}; must be QUEUE=GPUS, as gpu=16, once a queue, or one file",
                        "--quota",
                    )
                ]
            )
        queues[name] = int(number)
    return Quotas(queues=queues)


def check_quotas(quotas: Quotas, jobs: pa.Table, gpus: int) -> None:
    """Check that limits of GPUs change something, and let each job run.

    Args:
        quotas: The limits.
        jobs: Of the log.
        gpus: GPUs of the cluster.

    Raises:
        InputError: If not, with all faults.
    """
    held = pc.divide(pc.multiply(jobs["gpus"], jobs["gpu_milli"]).cast(pa.float64()), 1000.0)
    of_owner = pa.table({"queue": jobs["queue"], "user": jobs["user"], "gpus": held})
    faults = [
        *_find_faults("queue", quotas.queues, of_owner, gpus),
        *_find_faults("user", quotas.users, of_owner, gpus),
    ]
    if quotas.each_user is not None:
        names = set(of_owner["user"].to_pylist()) - {None, *quotas.users}
        if not names:
            faults.append(Problem("each_user: the log names no users", "--quota"))
        else:
            each = dict.fromkeys(sorted(names), quotas.each_user)
            faults += list(_find_faults("user", each, of_owner, gpus))[:1]
    if faults:
        raise InputError(faults)


def _find_faults(
    column: str, limits: Mapping[str, int], jobs: pa.Table, gpus: int
) -> Iterator[Problem]:
    """Limits of names that the log does not have, of all GPUs, or too low for a job."""
    groups = jobs.group_by(column, use_threads=False).aggregate([("gpus", "max")])
    largest = dict(zip(groups[column].to_pylist(), groups["gpus_max"].to_pylist(), strict=True))
    known = sorted(name for name in largest if name is not None)
    for name, limit in limits.items():
        what = f"{column} {name}, {limit:,} GPUs"
        if name not in known:
            some = f"; it has {', '.join(known[:10])}" if known else f"; it names no {column}s"
            yield Problem(
                f"the log has no {column} {name!r}{did_you_mean(name, known)}{some}", "--quota"
            )
        elif limit >= gpus:
            yield Problem(
                f"{what}: the cluster has {gpus:,}, so that this limits nothing", "--quota"
            )
        elif largest[name] > limit:
            too_large = pc.and_(pc.equal(jobs[column], name), pc.greater(jobs["gpus"], limit))
            number = pc.sum(too_large).as_py()
            yield Problem(
                f"{what}: {count(number, 'job')} could never run, the largest on "
                f"{largest[name]:g} GPUs",
                "--quota",
            )


def list_variants(
    asked: AskedOptions, baseline: str, trace: Trace, cluster: DescribedCluster, zone: str | None
) -> Iterator[AskedVariant]:
    """The variants, under the scheduler of the baseline.

    Args:
        asked: What is asked for.
        baseline: The scheduler.
        trace: The log.
        cluster: The nodes.
        zone: Time zone of the log's dates, if it is stated.

    Raises:
        InputError: If hours are asked for, and the log does not know the time of day.
    """
    for begin, end in asked.pauses:
        yield _pause(begin, end, trace, cluster, zone)
    for place in asked.places:
        yield AskedVariant(
            f"place-{place}",
            [f"Jobs are placed by {place}, not by {DEFAULTS['place']}."],
            {"policies": {"place": place}},
        )
    if asked.quotas is not None:
        limits = asked.quotas.model_dump(exclude_defaults=True)
        yield AskedVariant(
            "quota",
            ["Limits of the GPUs that jobs of a queue or user hold at one time."],
            {"policies": {"select": {"kind": "quota", "queue": baseline, **limits}}},
        )


def _pause(
    begin: time, end: time, trace: Trace, cluster: DescribedCluster, zone: str | None
) -> AskedVariant:
    """The variant in which no job runs in some hours of each day."""
    origin = origin_of(trace.quality)
    if origin is None or origin.is_unclear:
        raise InputError(
            [Problem("the log has no dates, so that its times of day are not known", "--pause")]
        )
    is_shifted = origin.is_utc and zone is not None
    clock = find_zone(zone) if is_shifted and zone is not None else UTC
    first = origin.moment.replace(tzinfo=UTC).astimezone(clock).date() - timedelta(days=1)
    idle_w = sum(
        group.count * group.gpus * cluster.power[group.gpu].idle_w for group in cluster.stated.nodes
    )
    values = {begin: math.ceil(1000 * idle_w) / 1000, end: NO_CAP_W}
    lines = ["time,value"]
    for day in (first + timedelta(days=number) for number in range(DAYS)):
        for each in sorted(values):
            at = datetime.combine(day, each, clock).astimezone(UTC)
            lines.append(f"{at:%Y-%m-%dT%H:%MZ},{values[each]:.15g}")
    name = f"pause-{begin:%H%M}-{end:%H%M}"
    file = f"{PAUSES}/{name}.csv"
    preemption = cluster.stated.preemption
    assumed = " Assumed, not measured: state `preemption` in the file of nodes."
    series = {
        "file": file,
        "unit": "W",
        "fill": "previous",
        "repeat": "year",
        "origin": f"{origin.moment:%Y-%m-%dT%H:%M:%S}+00:00",
    }
    told = zone if is_shifted else "UTC" if origin.is_utc else "the clock of the log"
    return AskedVariant(
        name,
        [
            f"No job runs from {begin:%H:%M} to {end:%H:%M} ({told}): a power cap lets GPUs only "
            "idle then. Running jobs are saved, give up their GPUs, and wait to resume."
            f"{assumed if preemption is None else ''}"
        ],
        {
            "cluster": {
                "power_cap_w": {"signal": name, "obey": "preempt"},
                "preemption": (preemption or ASSUMED_PREEMPTION).model_dump(mode="json"),
            }
        },
        {name: {"series": series}},
        {file: "\n".join([*lines, ""])},
    )

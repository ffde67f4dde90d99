"""Studies a cluster from its log: import, choice of a baseline, runs, page."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.analysis.logged.waits import closest_to_log
from wattkeeper.scenarios.analysis.resolved.policy_kinds import RECORDED
from wattkeeper.scenarios.document.times import describe_waits
from wattkeeper.scenarios.inputs.limit_models import most_measured_w
from wattkeeper.scenarios.log_study.asked import (
    NOTHING_ASKED,
    PAUSES,
    AskedOptions,
    check_quotas,
    list_variants,
)
from wattkeeper.scenarios.log_study.coverage import begin_with_log, check_types
from wattkeeper.scenarios.log_study.electricity import RATES, check_dates
from wattkeeper.scenarios.log_study.nodes import DescribedCluster
from wattkeeper.scenarios.log_study.partitions import (
    describe_queues,
    explain_one_queue,
    find_partitions,
)
from wattkeeper.scenarios.log_study.scenario_text import HEADER, StudyPlan, write_scenario
from wattkeeper.scenarios.log_study.schedulers import REAL, SCHEDULERS
from wattkeeper.scenarios.run.core import advise_compiling
from wattkeeper.scenarios.run.run import ScenarioResult, run
from wattkeeper.scenarios.spec.loading import LoadedScenario, load
from wattkeeper.sim.cluster_results.schemas import CLUSTER
from wattkeeper.sim.cluster_results.tables import ClusterResult
from wattkeeper.sim.results.folder import check_folder, check_possible
from wattkeeper.traces.files.atomic import is_leftover, replace_file
from wattkeeper.traces.library import folder as folders
from wattkeeper.traces.library.longest_limits import fill_limits
from wattkeeper.traces.trace import Trace

SCENARIO: Final = "scenario.yaml"
KEPT: Final = "scenario.before.yaml"
TRACE: Final = "trace"
RESULTS: Final = "results"
PARTS: Final = (TRACE, RESULTS, PAUSES, *RATES)
"""What a study writes besides its scenario."""
NAMED: Final = "chosen with --baseline."
FRACTIONS: Final = (0.9, 0.8, 0.7)
"""Power limits, as fractions of the highest."""
MOST_STARTLESS: Final = 0.1
"""Share of jobs without a recorded start above which the record is no variant."""


class Reporter(NamedTuple):
    """What a study reports while it is at work.

    Attributes:
        tell: Called with each line.
        progress: See `wattkeeper.scenarios.run.run.run`.
    """

    tell: Callable[[str], None]
    progress: Callable[[int, int, str], None]


class StudyResult(NamedTuple):
    """A finished study.

    Attributes:
        loaded: Its scenario.
        done: Its results, saved.
        folder: Where they are.
    """

    loaded: LoadedScenario
    done: ScenarioResult
    folder: Path


def check_free(out: Path, *, replace: bool) -> None:
    """Check that a study may write into a folder.

    Raises:
        InputError: If the folder is not a study's and holds anything else, a part of it is not what
            a study writes, or a finished study is there and `replace` is not given.
        EnvironmentLacks: If the file system refuses it.
    """
    check_possible(out)
    scenario, results = out / SCENARIO, out / RESULTS
    try:
        foreign = scenario.exists() and not scenario.read_text("utf-8").startswith(HEADER)
    except (OSError, ValueError):
        foreign = True
    if foreign:
        raise InputError("is no scenario of a study; choose another folder (--out)", scenario)
    if out.exists() and not scenario.exists():
        names = (path.name for path in sorted(out.iterdir()) if not is_leftover(path.name))
        if strange := next((name for name in names if name not in PARTS), ""):
            raise InputError(
                f"holds {strange!r}, which is no part of a study; choose another folder (--out)",
                out,
            )
    folders.check_free(out / TRACE, overwrite=True)
    check_folder(results, CLUSTER)
    if results.exists() and not replace:
        again = f"Run it again with `wattkeeper run {scenario} --out {results}`, choose"
        advice = again if scenario.exists() else "Its scenario is gone: choose"
        raise InputError(
            f"holds the results of a study. {advice} another folder (--out), or replace it with "
            "--replace",
            out,
        )


def study_log(
    plan: StudyPlan,
    out: Path,
    workers: int,
    reporter: Reporter,
    asked: AskedOptions = NOTHING_ASKED,
    zone: str | None = None,
) -> StudyResult:
    """Study a log that was imported into `out`; write its scenario and its results there.

    Jobs without a time limit get one, if any job has one. The baseline is that of the plan, else
    the scheduler of `REAL` that is closest to the record.

    Args:
        plan: What is known before any run.
        out: The folder of the study.
        workers: Number of processes.
        reporter: Of what is done.
        asked: What else options ask for.
        zone: Time zone of the log's dates, if it is stated.

    Raises:
        WattkeeperError: If no job can run, or a file is wrong.
    """
    trace = folders.read(out / TRACE)
    check_dates(plan.rates, trace)
    for name, source in plan.rates.files.items():
        with replace_file(out / name, make_parents=True) as fresh:
            shutil.copyfile(source, fresh)
    _keep_scenario(out, reporter.tell)
    jobs, notes = _complete_trace(trace, out / TRACE, reporter.tell)
    types = list(plan.cluster.power)
    partitions = find_partitions(jobs, types)
    check_types(jobs, types, reporter.tell, partitions)
    if partitions:
        reporter.tell(describe_queues(partitions, types))
    elif why := explain_one_queue(jobs, types):
        reporter.tell(why)
    if asked.quotas is not None:
        gpus = sum(group.count * group.gpus for group in plan.cluster.stated.nodes)
        check_quotas(asked.quotas, jobs, gpus)
    schedulers = list(_choose_schedulers(jobs, reporter.tell))
    named = plan.baseline
    if named and named not in schedulers:
        raise InputError(f"--baseline: {named} cannot run these jobs; choose another one")
    plan = plan._replace(
        schedulers=schedulers,
        baseline=named or next(name for name in REAL if name in schedulers),
        fractions=_choose_fractions(plan.cluster, jobs, reporter.tell),
        notes=notes,
        partitions=partitions,
    )
    known: list[ClusterResult] = []
    if advice := advise_compiling(len(jobs)):
        reporter.tell(advice)
    if RECORDED in schedulers:
        done = run(_load(plan, out), workers, reporter.progress)
        known = done.results
        plan = _choose_baseline(plan, done, named, reporter.tell)
    else:
        why = NAMED if named else _explain_default(jobs)
        plan = plan._replace(why=f"{plan.baseline}: {why}")
        reporter.tell(f"Baseline {plan.why}")
    variants = list(list_variants(asked, plan.baseline, trace, plan.cluster, zone))
    for path, text in ((out / name, text) for one in variants for name, text in one.files.items()):
        with replace_file(path, make_parents=True) as fresh:
            fresh.write_text(text, encoding="utf-8")
    loaded = _load(plan._replace(is_final=True, asked=variants), out)
    done = run(loaded, workers, reporter.progress, known=known)
    folder = out / RESULTS
    done.save(folder)
    return StudyResult(loaded, done, folder)


def _keep_scenario(out: Path, tell: Callable[[str], None]) -> None:
    """Keep a copy of the scenario that is about to be replaced: it may have been edited.

    A copy of another text is not replaced; the next one has a number in its name.
    """
    before = out / SCENARIO
    if not before.exists():
        return
    text = before.read_bytes()
    kept, number = out / KEPT, 1
    while kept.exists() and kept.read_bytes() != text:
        number += 1
        kept = (out / KEPT).with_stem(f"{KEPT.removesuffix('.yaml')}-{number}")
    with replace_file(kept) as fresh:
        fresh.write_bytes(text)
    tell(f"The scenario of the study before is kept in {kept}.")


def _load(plan: StudyPlan, out: Path) -> LoadedScenario:
    """Write the scenario of a plan, and read it."""
    path = out / SCENARIO
    text = write_scenario(plan, path, out / RESULTS)
    with replace_file(path) as fresh:
        fresh.write_text(text, encoding="utf-8")
    return load(str(path))


def _complete_trace(
    trace: Trace, folder: Path, tell: Callable[[str], None]
) -> tuple[pa.Table, Sequence[str]]:
    """The jobs of a trace, which gets the limits that it lacks and its begin, and the changes."""
    filled = fill_limits(trace)
    changed = begin_with_log(filled)
    limits = filled.notes[len(trace.notes) :]
    begins = changed.notes[len(filled.notes) :]
    if limits or begins:
        folders.write(changed, folder, overwrite=True)
    for note in limits:
        tell(f"Note: {note} --partitions or --default-estimate state others.")
    for note in begins:
        tell(f"Note: {note}")
    return changed.tables["jobs"], [*limits, *begins]


def _explain_default(jobs: pa.Table) -> str:
    """Why the record chooses no baseline."""
    number = "no" if jobs["start_time_s"].null_count == jobs.num_rows else "too few"
    return f"the log has {number} recorded starts to choose a scheduler by."


def _choose_schedulers(jobs: pa.Table, tell: Callable[[str], None]) -> Iterator[str]:
    """The schedulers that can work on these jobs, the record last."""
    startless = jobs["start_time_s"].null_count
    has_record = startless <= MOST_STARTLESS * jobs.num_rows
    if not has_record and startless < jobs.num_rows:
        tell(
            f"Left out: {RECORDED}, for {startless:,} of {jobs.num_rows:,} jobs have no recorded "
            "start."
        )
    has_limits = not jobs["estimate_s"].null_count
    if not has_limits:
        tell(
            "Left out: easy-backfill, for no job has a time limit; state limits with --partitions "
            "or --default-estimate."
        )
    yield from (name for name in SCHEDULERS if name != "easy-backfill" or has_limits)
    if has_record:
        yield RECORDED


def _choose_fractions(
    cluster: DescribedCluster, jobs: pa.Table, tell: Callable[[str], None]
) -> Sequence[float]:
    """The power limits that all GPU types allow, and whose effect is known on all jobs."""
    unknown = [name for name, power in cluster.power.items() if not power.limits_w]
    if unknown:
        lacks = "power model" if cluster.power[unknown[0]].model is None else "lowest power limit"
        tell(
            f"Left out: power limits, for no {lacks} of GPU type {unknown[0]!r} is known; state "
            "its facts, or name another type, with `model` in the file of nodes."
        )
        return ()
    chosen = []
    for fraction in FRACTIONS:
        for name, power in cluster.power.items():
            assert power.model is not None
            high = power.model.default_limit_w
            most_w = max(power.busy_w, most_measured_w(jobs, power.model.max_limit_w))
            low = power.model.lowest_limit_w(most_w) or high
            if fraction * high < low:
                tell(
                    f"Left out: a power limit of {100 * fraction:.0f} % of {high:g} W, for {name} "
                    f"allows none below {low:g} W."
                )
                break
        else:
            chosen.append(fraction)
    return chosen


def _choose_baseline(
    plan: StudyPlan, done: ScenarioResult, named: str, tell: Callable[[str], None]
) -> StudyPlan:
    """The plan with the named baseline, or the scheduler that is closest to the record."""
    parts = done.manifest["waits"]
    real = [name for name in REAL if name in plan.schedulers]
    closest = closest_to_log(parts, real)
    why = f"{closest} is closest to the record of {', '.join(real)}, which a site can run."
    if named:
        why = f"{named}: {NAMED}" + f" {why}" * (named != closest)
    tell(f"Baseline: {why}")
    baseline = named or closest
    for line in describe_waits(parts, baseline, done.manifest["scenario"]):
        tell(line)
    return plan._replace(baseline=baseline, why=why)

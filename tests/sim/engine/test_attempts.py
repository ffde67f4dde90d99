"""Every job ends, with its attempts in order, and starts when the queue says."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from tests.support.world_views import any_world, epochs_of, profile_of
from tests.support.worlds import (
    Setting,
    attempts,
    attempts_by_job,
    chosen,
    decided,
    decisions,
    starts,
)


def fifo(setting: Setting, **others: str) -> Setting:
    """The same setting without a power cap, where jobs start in order and none is preempted."""
    config = replace(setting.policy_set, select=chosen().select)
    for point, kind in others.items():
        config = replace(config, **{point: getattr(chosen(**{point: kind}), point)})
    cluster = replace(setting.cluster, power_cap_w=None)
    return setting._replace(policy_set=config, cluster=cluster)


@any_world
def test_every_job_ends(setting: Setting) -> None:
    ended = attempts_by_job(setting.run())
    assert set(ended) == {submitted.job_id for submitted in setting.jobs}
    for rows in ended.values():
        assert [row.attempt for row in rows] == list(range(1, len(rows) + 1))
        assert not any(row.reached_target for row in rows[:-1])
        assert rows[-1].reached_target or len(rows) == setting.max_attempts


@any_world
def test_retries_follow_at_once(setting: Setting) -> None:
    for rows in attempts_by_job(setting.run()).values():
        for before, after in pairwise(rows):
            assert after.start_time_s == before.finish_time_s
            if not after.preemptions:
                assert after.node_ids == before.node_ids


@any_world
def test_preemptions_are_counted(setting: Setting) -> None:
    world = setting.run()
    preemptions = [row for row in decisions(world) if row.chose == "preempt"]
    counted = {(row.job_id, row.attempt): row.preemptions for row in attempts(world)}
    assert sum(counted.values()) == len(preemptions)
    for key, times in counted.items():
        assert times == sum((row.job_id, row.attempt) == key for row in preemptions)


@any_world
def test_attempts_are_recorded_by_time_of_finishing(setting: Setting) -> None:
    world = setting.run()
    rows = attempts(world)
    assert [row.finish_time_s for row in rows] == sorted(row.finish_time_s for row in rows)
    by_id = {job.job_id: job for job in setting.jobs}
    for row in rows:
        submitted = by_id[row.job_id]
        assert row.submit_time_s == submitted.submit_time_s
        assert row.submit_time_s <= row.start_time_s <= row.finish_time_s
        assert (row.group_id, row.recurrence) == (submitted.group_id, submitted.recurrence)
        assert (row.time_scale, row.workload) == (submitted.time_scale, submitted.workload)
        assert row.replayed == ("duration" if row.workload is None else "profile")
        if row.workload is None:
            assert (row.epochs, row.batch_size) == (None, None)
            assert (row.power_limit_w is not None) == setting.policy_set.tune.limits_unprofiled
            assert (row.reached_target, row.early_stopped, row.profiled) == (True, False, False)
        else:
            early = not row.reached_target and epochs_of(row) < profile_of(setting, row).max_epochs
            assert row.early_stopped == early


@any_world
def test_fifo_starts_jobs_in_order_of_submission(setting: Setting) -> None:
    world = fifo(setting).run()
    assert decided(world, "select") == [
        (starts(world)[submitted.job_id], submitted.job_id, "start") for submitted in setting.jobs
    ]
    started = starts(world)
    times = [started[submitted.job_id] for submitted in setting.jobs]
    assert times == sorted(times)


@any_world
def test_no_job_waits_while_the_head_of_the_queue_fits(setting: Setting) -> None:
    """A job starts when it is submitted, when the one before it starts, or when GPUs come free."""
    world = fifo(setting, place="first-fit").run()
    started = starts(world)
    freed = {rows[-1].finish_time_s for rows in attempts_by_job(world).values()}
    before = -math.inf
    for submitted in setting.jobs:
        start_s = started[submitted.job_id]
        assert start_s == max(submitted.submit_time_s, before) or start_s in freed
        before = start_s

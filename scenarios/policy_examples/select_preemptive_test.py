"""Tests of the policy `shortest-remaining`: `pytest FILE`.

`test_it_keeps_the_contract` is for any policy. The other tests, and the settings in them, are those
of the example: replace them where the policy becomes another one.
"""

from collections.abc import Collection
from pathlib import Path

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.select import CapacityView
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.scenarios.policy_kit import (
    ScriptedContext,
    check_policy_file,
    job,
    load_policy,
    profile,
)

FILE = Path(__file__).with_name("select_preemptive.py")


class OneGpu(CapacityView):
    """A cluster of one GPU, which is held."""

    gpus = 1
    free_gpus = 0
    growths = 0

    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        """Only in the place of another job."""
        return len(without) == 1


class FreeGpu(OneGpu):
    """The same, and the GPU is free."""

    free_gpus = 1

    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        """Always."""
        return True


def test_it_keeps_the_contract() -> None:
    """The contract, the simulator and a rehearsed live run: `wattkeeper policy check`."""
    assert check_policy_file(FILE).faults == []


def test_a_job_that_outlived_what_its_group_runs_for_is_preempted() -> None:
    """Not before it is expected to run longer than the other by the margin, which is 60 s."""
    ctx = ScriptedContext(profile())
    policy = load_policy(FILE)().build()
    ended = job("group/1", group="group")
    policy.on_submit(ctx, ended)
    assert policy.select(ctx, FreeGpu()).start == (ended,)
    outcome = ctx.outcome(Start(ended, 1, ctx.options(), 0), Configuration(32), 250.0)
    policy.observe(ctx, outcome)
    policy.on_end(ctx, ended)
    long, other = (job(f"group/{n}", group="group").replace(number=n) for n in (2, 3))
    policy.on_submit(ctx, long)
    assert policy.select(ctx, FreeGpu()).start == (long,)
    policy.on_submit(ctx, other)
    ctx.now_s = outcome.time_s + 59.0
    assert not policy.select(ctx, OneGpu()).start
    ctx.now_s = outcome.time_s + 61.0
    selection = policy.select(ctx, OneGpu())
    assert (selection.start, selection.preempt) == ((other,), (long,))
    assert not policy.select(ctx, OneGpu()).start

"""Tests of the policy `ageing`: `pytest FILE`.

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

FILE = Path(__file__).with_name("select.py")


class RoomForAll(CapacityView):
    """A cluster in which every job fits."""

    gpus = free_gpus = 8
    growths = 0

    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        """Always."""
        return True


def test_it_keeps_the_contract() -> None:
    """The contract, the simulator and a rehearsed live run: `wattkeeper policy check`."""
    assert check_policy_file(FILE).faults == []


def test_a_long_job_moves_up_as_it_waits() -> None:
    """The group that ran for long comes last, unless it has waited for long enough."""
    ctx = ScriptedContext(profile())
    for waited_s, expected in ((0.0, "short"), (1e6, "long")):
        policy = load_policy(FILE)(weight=0.5).build()
        ctx.now_s = 1e6
        long = job("long/2", ctx.now_s - waited_s, group="long").replace(number=1)
        policy.on_submit(ctx, long)
        ended = Start(long, 1, ctx.options(), 0)
        policy.observe(ctx, ctx.outcome(ended, Configuration(32), 250.0))
        policy.on_submit(ctx, job("short/1", ctx.now_s, group="short").replace(number=2))
        (first,) = policy.select(ctx, RoomForAll()).start
        assert first.group_id == expected

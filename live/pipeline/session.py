"""The session of a pipeline-parallel training: clocks by instruction, as a policy plans them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from wattkeeper.live.devices import find_devices
from wattkeeper.live.devices.device import Device
from wattkeeper.live.devices.power_limiter import PowerLimiter, permitted_control
from wattkeeper.live.pipeline.arguments import PipelineArguments, RankFacts
from wattkeeper.live.pipeline.exchange import StageExchange
from wattkeeper.live.pipeline.leader import PipelineLeader
from wattkeeper.live.pipeline.meters import RankMeter, make_meter
from wattkeeper.live.pipeline.reports import (
    OperationTotals,
    Order,
    RankReport,
    RankTotals,
    ReplicaPace,
)
from wattkeeper.live.session.distributed import connected_store, describe_exit, rank_and_size
from wattkeeper.live.session.termination import Stopped, Terminations
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.pipeline.graph import schedule_graph
from wattkeeper.policies.pipeline.schedules import Instruction, program_of

if TYPE_CHECKING:
    from wattkeeper.live.pipeline.emulation import EmulatedPipeline
    from wattkeeper.policies.registry import PolicyConfig

PATIENCE_S: Final = 1800.0
"""How long a rank waits for another one that seems to run, s: as torch does for gloo. Some policies
take minutes to plan."""

_sessions = itertools.count()
"""Of this process: all ranks begin their sessions in the same order."""


class ClockSetter:
    """Locks the clocks of the devices of a rank, until `stack` is closed.

    Attributes:
        clocks_mhz: The clocks that all of the devices may be locked to, MHz, ascending.

    Raises:
        EnvironmentLacks: If their clocks cannot be locked; it says why.
    """

    def __init__(self, devices: Sequence[Device], stack: ExitStack) -> None:
        common = set.intersection(*(set(device.clocks_mhz) for device in devices))
        self.clocks_mhz = tuple(sorted(common))
        self._limiter = stack.enter_context(PowerLimiter(devices, permitted_control(), clocks=True))
        self._locked_mhz = 0
        if not self._limiter.allowed:
            raise EnvironmentLacks(f"plans of clocks cannot be carried out: {self._limiter.why}")

    def set_mhz(self, clock_mhz: int) -> None:
        """Lock each device to a clock (MHz), unless it is.

        Raises:
            EnvironmentLacks: If they cannot be locked any more.
        """
        if clock_mhz == self._locked_mhz:
            return
        if not self._limiter.lock_mhz(clock_mhz):
            raise EnvironmentLacks(f"clocks cannot be locked any more: {self._limiter.why}")
        self._locked_mhz = clock_mhz


class RankIteration:
    """What an iteration of one rank takes; it begins as this is made."""

    def __init__(self, meter: RankMeter) -> None:
        self._meter = meter
        self._begun_s, self._begun_j = meter.now_s(), meter.energy_j()
        self._operations: dict[int, OperationTotals] = {}

    @contextmanager
    def measure(self, operation: int, number: int) -> Iterator[None]:
        """Measure an instruction; `number`: its number in the graph."""
        meter = self._meter
        meter.begin(number)
        begun_s, begun_j = meter.now_s(), meter.energy_j()
        yield
        meter.end(number)
        self._ended_s, self._ended_j = meter.now_s(), meter.energy_j()
        took = OperationTotals(1, self._ended_s - begun_s, self._ended_j - begun_j)
        self._operations[operation] = self._operations.get(operation, OperationTotals()).plus(took)

    def report(self) -> RankReport:
        """What it took until the end of its last instruction."""
        time_s, energy_j = self._ended_s - self._begun_s, self._ended_j - self._begun_j
        return RankReport(self._ended_s, time_s, energy_j, self._operations)

    def totals(self) -> RankTotals:
        """What it took until now."""
        meter = self._meter
        return RankTotals(meter.now_s() - self._begun_s, meter.energy_j() - self._begun_j)


class PipelineSession:
    """One rank of a pipeline-parallel training; a context manager.

    Its first iterations measure time and energy of each instruction at each clock; then a policy
    plans clocks by instruction, which the session sets. A stage that becomes slower, or a replica
    that does, is a straggler: the policy is asked again. On leaving, also after an error, the
    clocks are released.

    The ranks are processes that torch.distributed connects. With several replicas of the pipeline,
    ranks are numbered replica by replica.

    Args:
        job: Name of the training in results.
        microbatches: Of an iteration.
        iterations: Length of the training; iterations that measure count.
        tune: The policy that plans clocks, by name or as its config.
        schedule: `1f1b`, `gpipe`, or `interleaved` with several `chunks` of the model on each rank.
        replicas: Number of equal pipelines.
        clocks_mhz: The clocks to measure, MHz; None: some of those that the devices support.
        profile: CSV file with points that were measured before; None: they are measured.
        profile_iterations: Measured iterations at each clock.
        blocking_power_w: Power of a GPU that waits for another rank, W; None: as measured.
        output: Folder for `profile.csv` and `pipeline.json`; None: nothing is written.
        emulate: What instructions take on synthetic devices, which compute nothing.

    Attributes:
        replica: Number of its pipeline, from 0.
        rank: Number of this rank in it, from 0.
        program: Its instructions in an iteration, in order.
        order: What the present iteration is done by.
        leader: The decisions and records; only on rank 0 of a pipeline.

    Raises:
        InputError: If an argument is wrong, or torch.distributed is not initialised.
        EnvironmentLacks: If the devices measure no energy.
    """

    order: Order

    def __init__(
        self,
        job: str,
        *,
        microbatches: int,
        iterations: int,
        tune: str | PolicyConfig = "pipeline-exact",
        schedule: Literal["1f1b", "gpipe", "interleaved"] = "1f1b",
        chunks: int = 1,
        replicas: int = 1,
        clocks_mhz: Sequence[int] | None = None,
        profile: str | Path | None = None,
        profile_iterations: int = 3,
        blocking_power_w: float | None = None,
        output: str | Path | None = None,
        emulate: EmulatedPipeline | None = None,
    ) -> None:
        self._store = connected_store()
        world_rank, world = rank_and_size()
        self._arguments = arguments = PipelineArguments(
            job,
            microbatches,
            iterations,
            tune,
            schedule,
            chunks,
            replicas,
            clocks_mhz,
            profile,
            profile_iterations,
            blocking_power_w,
            output,
            world,
        )
        arguments.check()
        self.replica, self.rank = divmod(world_rank, world // replicas)
        self._schedule = arguments.make_schedule()
        self._numbers = schedule_graph(self._schedule).positions[self.rank]
        self.program: tuple[Instruction, ...] = program_of(self._schedule)[self.rank]
        self._emulated = emulate
        self.leader: PipelineLeader | None = None
        self._stack = ExitStack()
        self._left: tuple[Instruction, ...] = ()
        self._is_over = False

    def __enter__(self) -> Self:
        terminations = self._terminations = Terminations()
        try:
            self._join()
            terminations.begin()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _join(self) -> None:
        arguments, ranks = self._arguments, self._schedule.ranks
        name, replicas = f"pipeline/{next(_sessions)}/{arguments.job}", arguments.replicas
        exchange = self._exchange = StageExchange(
            self._store, f"{name}/{self.replica}", self.rank, ranks, PATIENCE_S
        )
        if exchange.is_leader:
            self._leaders = StageExchange(self._store, name, self.replica, replicas, PATIENCE_S)
        devices = find_devices()
        self._meter = make_meter(devices, self._emulated, exchange, schedule_graph(self._schedule))
        self._stack.callback(self._meter.close)
        self._clocks = ClockSetter(devices, self._stack)
        own = RankFacts(len(devices), devices[0].gpu_type, self._clocks.clocks_mhz)
        facts = exchange.gather(own)
        if exchange.is_leader:
            self.leader = arguments.make_leader(
                facts, self._meter.now_s, self.replica, self._emulated
            )
        self.order = exchange.share(_order_of(self.leader), Order)

    def iterations(self) -> Iterator[int]:
        """Yield the numbers of the iterations, from 1; the body does the whole program.

        Raises:
            InputError: If the body left instructions out.
            EnvironmentLacks: If another rank failed or ended.
        """
        measured = 0
        for number in range(1, self._arguments.iterations + 1):
            measured += self.order.measures
            self._iteration = RankIteration(self._meter)
            self._meter.begin_iteration(0 if self.order.measures else number - measured)
            self._left = self.program
            yield number
            if self._left:
                raise InputError(
                    f"iteration {number} ended after {self._done} of {len(self.program)} "
                    f"instructions; next was {self._left[0]}"
                )
            self._finish()
        self._exchange.gather("done")
        if self._exchange.is_leader:
            self._leaders.gather("done")
        self._is_over = True

    @contextmanager
    def instruction(self, instruction: Instruction) -> Iterator[None]:
        """Compute the next instruction of the program, at its clock.

        Inputs from other ranks are received before, and outputs sent after it: waiting is not part
        of an instruction.

        Raises:
            InputError: If it is not the next one.
        """
        if not self._left or instruction != self._left[0]:
            expected = self._left[0] if self._left else "no further"
            raise InputError(f"found {instruction}; the program of rank {self.rank} has {expected}")
        self._clocks.set_mhz(self.order.plan[self.rank][self._done])
        with self._iteration.measure(instruction.operation, self._numbers[self._done]):
            yield
        self._left = self._left[1:]

    @property
    def _done(self) -> int:
        """Number of instructions of the iteration that were done."""
        return len(self.program) - len(self._left)

    def _finish(self) -> None:
        """End an iteration together with all ranks, and learn what the next one is done by."""
        exchange, leader = self._exchange, self.leader
        reports = exchange.gather(self._iteration.report())
        others: list[ReplicaPace] = []
        last_s = 0.0
        if leader is not None:
            last_s = max(each.ended_s for each in reports)
            others = self._leaders.gather_others(ReplicaPace(last_s, leader.fastest_s()))
            last_s = max(last_s, *(pace.ended_s for pace in others), 0.0)
        self._meter.meet(exchange.share(last_s, float))
        totals = exchange.gather(self._iteration.totals())
        if leader is not None:
            leader.finish(reports, totals, others)
        self.order = exchange.share(_order_of(leader), Order)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._terminations.restore()
        ended = "done" if self._is_over and error is None else describe_exit(error)
        if not self._is_over and hasattr(self, "_exchange"):
            self._exchange.leave(ended)
        try:
            if self.leader is not None:
                self.leader.write(ended)
        finally:
            self._stack.close()
        if isinstance(error, Stopped):
            self._terminations.resend()


def _order_of(leader: PipelineLeader | None) -> Order | None:
    return None if leader is None else leader.order

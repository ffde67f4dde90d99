"""The session: three lines in a training script that save energy."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from wattkeeper.live.session import checkpoint, distributed, lr_scaling
from wattkeeper.live.session.arguments import SessionArguments
from wattkeeper.live.session.coordinators import connect_coordinator, is_linked
from wattkeeper.live.session.heartbeat import Heartbeat
from wattkeeper.live.session.power_profiler import COUNTED_S, PowerProfiler, SliceProfiler
from wattkeeper.live.session.probes import Probe, train_slices
from wattkeeper.live.session.termination import Stopped, Terminations
from wattkeeper.live.wire.messages import (
    Assignment,
    AttemptResult,
    Cause,
    Coordinator,
    EpochReport,
    ProfileReport,
)
from wattkeeper.policies.errors import (
    DeviceError,
    EnvironmentLacks,
    InputError,
    WattkeeperError,
    cut_message,
)
from wattkeeper.policies.points.views import Measurement, Slice
from wattkeeper.policies.profile import Objective

if TYPE_CHECKING:
    from torch import nn

    from wattkeeper.live.devices.energy_meter import Reading
    from wattkeeper.live.session.knob_watch import KnobWatch
    from wattkeeper.live.session.warm_start import WarmStart
    from wattkeeper.live.weight_transfer.program.tracing import Inputs
    from wattkeeper.live.weight_transfer.report import TransferReport
    from wattkeeper.policies.registry import PolicyConfig

POWER_CONTROL: Final = "WATTKEEPER_POWER_CONTROL"
"""Environment variable: `off` if power limits must not be changed."""

log = logging.getLogger("wattkeeper.session")


class Steps:
    """An epoch; iterating over it yields the batches of the loader and counts its steps.

    Attributes:
        number: From 1.
    """

    def __init__(self, session: Session, loader: Iterable[Any] | None, number: int) -> None:
        self.number = number
        self._session, self._loader = session, loader

    def __iter__(self) -> Iterator[Any]:
        if self._loader is None:
            raise InputError(
                "this epoch has no batches: give epochs() the loader, or call step() after each "
                "step and iterate over your own loader"
            )
        for batch in self._loader:
            yield batch
            self._session.step()


class Session:
    """One recurrence of a training that recurs; a context manager.

    Inside ``with``, it gives the batch size, learning rate and power limit of this recurrence,
    measures its energy, and sets the power limit; at the end, also after an error, the outcome is
    stored and the power limit restored. In a process that a live run started, the controller's
    assignment replaces the arguments.

    Args:
        job: Name of the recurring job; its sessions share what they learn.
        batch_sizes: The choices, samples over all GPUs.
        default_batch_size: One of them, which the script's learning rate belongs to.
        max_epochs: The training ends after so many.
        target: Value of the metric that ends it; None: the epochs, or the script itself, do.
        higher_is_better: Whether the target is reached from below.
        eta: Weight of energy (1) against time (0) in the cost, which is minimised.
        configure: Policy that chooses batch sizes, by name or config.
        tune: Policy that chooses power limits, by name or config; `zeus-jit` unless `configure`
            chooses them, too.
        power_limits_w: Limits of a GPU that may be chosen, W; by default all that its driver
            allows, in steps of 25 W below the highest.
        power_control: `off` leaves power limits as they are.
        store: Database of what is learnt: a file or a PostgreSQL URL; by default
            `WATTKEEPER_STORE`, else a file in the user's state folder.
        lease_s: A session that does not renew its lease for so long is hung, s.
        samples_per_epoch: Samples of an epoch; only policies that ask for slices need it.

    Raises:
        InputError: If an argument is wrong.
        PolicyError: If a policy cannot be asked live.
        EnvironmentLacks: On entering, if the store cannot be reached, or nothing measures the
            energy that the cost counts.

    Attributes:
        assignment: What this attempt shall do; from entering on.
        outcome: How it ended; from leaving on.
        power_limit_w: The limit in force, W; None if not known.
    """

    assignment: Assignment
    outcome: AttemptResult

    def __init__(
        self,
        job: str,
        *,
        batch_sizes: Sequence[int],
        default_batch_size: int,
        max_epochs: int,
        target: float | None = None,
        higher_is_better: bool = True,
        eta: float = 0.5,
        configure: str | PolicyConfig = "zeus",
        tune: str | PolicyConfig | None = None,
        power_limits_w: Sequence[float] | None = None,
        power_control: Literal["auto", "off"] = "auto",
        store: str | Path | None = None,
        lease_s: float = 60.0,
        samples_per_epoch: int | None = None,
    ) -> None:
        self._arguments = SessionArguments(
            job,
            tuple(batch_sizes),
            default_batch_size,
            max_epochs,
            target,
            higher_is_better,
            eta,
            configure,
            tune,
            None if power_limits_w is None else tuple(power_limits_w),
            store,
            lease_s,
            samples_per_epoch,
        )
        self._arguments.check()
        self._control = power_control
        self.power_limit_w: float | None = None
        self._checkpointed: dict[str, checkpoint.Checkpointable] = {}
        self._restored = False
        self._cause: Cause | None = None
        self._begun = self._open = False
        self._metric: float | None = None
        self._epochs, self._before = 0, (0.0, 0.0)
        self._costs: list[float] = []
        self._knobs: KnobWatch | None = None
        self._limit_changed = False
        self._epoch_cost: float | None = None
        self._spent_before = 0.0
        self._profiling: PowerProfiler | SliceProfiler | None = None
        self._reports = 0
        self._probe: Probe | None = None
        self._measured: tuple[Measurement, ...] = ()
        self._warm: WarmStart | None = None
        self._parent: int | None = None

    def __enter__(self) -> Session:
        from wattkeeper.live.devices import find_devices
        from wattkeeper.live.devices.energy_meter import EnergyMeter
        from wattkeeper.live.devices.power_limiter import PowerLimiter
        from wattkeeper.live.wire.clock import run_clock

        def begin() -> Assignment:
            devices = find_devices() if distributed.is_leader() else []
            with suppress(DeviceError):
                self.power_limit_w = min((device.limit_w() for device in devices), default=None)
            off = os.environ.get(POWER_CONTROL) == "off" or not distributed.is_leader()
            limiter = PowerLimiter(devices, "off" if off else self._control)
            self._limiter = stack.enter_context(limiter)
            self._meter = EnergyMeter(devices, run_clock())
            stack.callback(self._meter.close)
            self._coordinator: Coordinator = connect_coordinator(
                self._arguments, devices, self._limiter, self._meter.how
            )
            return self._coordinator.begin()

        self._pid = os.getpid()
        self._ranks = distributed.Ranks()
        with ExitStack() as stack:
            self.assignment = (
                begin() if is_linked() else self._ranks.call_together(begin, Assignment)
            )
            self._heartbeat = Heartbeat(self._coordinator, self.assignment.lease_s)
            self._signals = Terminations()
            self._resources = stack.pop_all()
        self._objective = Objective(self.assignment.eta)
        try:
            self._heartbeat.begin()
            self._signals.begin()
            if self.assignment.power_limit_w is not None:
                self._limit(self.assignment.power_limit_w)
            if self.assignment.retunes and self._limiter.allowed:
                self._watch_knobs()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _watch_knobs(self) -> None:
        from wattkeeper.live.session.knob_watch import KnobWatch
        from wattkeeper.live.wire.client import RemoteCoordinator
        from wattkeeper.live.wire.clock import run_clock

        assert isinstance(self._coordinator, RemoteCoordinator)
        self._knobs = KnobWatch(
            self._coordinator, run_clock(), self._change_limit, self._heartbeat.stop
        )
        self._resources.callback(self._knobs.end)
        self._knobs.begin()

    @property
    def batch_size(self) -> int:
        """Samples a step, over all GPUs."""
        return self.assignment.batch_size

    @property
    def reached(self) -> bool:
        """Whether the target was reached; known once it ended."""
        return self.outcome.cause == "reached"

    def learning_rate(self, rate: float, rule: lr_scaling.Rule = "linear") -> float:
        """The learning rate for the batch size, given that for the default batch size.

        See `wattkeeper.live.session.lr_scaling` for the rules and where they are from.
        """
        return lr_scaling.scale_learning_rate(
            rate, self.batch_size, self.assignment.default_batch_size, rule
        )

    def warm_start(
        self,
        model: nn.Module,
        zoo: str | Path,
        *,
        older: Sequence[nn.Module] = (),
        inputs: Inputs | None = None,
        policy: str | PolicyConfig = "modelkeeper",
        mutated_from: str | None = None,
    ) -> TransferReport | None:
        """Fill a model from one that a zoo holds of this job; a policy chooses which.

        In a process that a live run with a zoo started, the run's zoo and the parent that its
        policy chose replace `zoo`, `policy` and `mutated_from`.

        A training that continues after it was stopped takes nothing: `keep` restores the model, and
        the zoo is told of the parent that it had. Of several processes, rank 0 fills the model, and
        all get its weights.

        When the training has reached its target, or is done where it has none, the model enters
        the zoo with the metric that was reported last.

        Args:
            model: The model that will be trained, on any device, before it is wrapped (as by
                `DistributedDataParallel`).
            zoo: Folder of the zoo; it is made if it is not there.
            older: Modules of other architectures that earlier recurrences may have had.
            inputs: Positional arguments that all forwards take; by default derived.
            policy: `Configure` policy that chooses the parent, by name or config.
            mutated_from: Name of the model in the zoo that this one is a mutation of, for policies
                that follow the lineage.

        Returns:
            What became of each tensor; None if nothing was taken.

        Raises:
            InputError: If a module cannot be traced, the smaller metric is the better one, or the
                policy chooses no parents.
            StoreError: If the folder holds no zoo, or a damaged one.
            EnvironmentLacks: If this is not rank 0, and that raised one of these.
        """
        if not self.assignment.higher_is_better:
            raise InputError(
                "warm_start: a zoo takes the larger metric for the better one; report an accuracy, "
                "with higher_is_better=True"
            )
        from wattkeeper.live.session import warm_start
        from wattkeeper.live.weight_transfer.report import TransferReport
        from wattkeeper.policies.points.job import Job

        def begin() -> TransferReport | None:
            if not distributed.is_leader():
                return None
            assignment, fresh, name = self.assignment, not self._continues, self._model_name
            job = Job(name, self._arguments.job, assignment.recurrence, None, 1, 0.0, model=name)
            choose = (
                warm_start.ask_policy(policy, job)
                if assignment.zoo is None
                else warm_start.take_assigned(assignment.parent)
            )
            self._warm = warm_start.begin(
                assignment.zoo or zoo, job, model, older, inputs, choose, mutated_from, fill=fresh
            )
            if fresh:
                self._parent = self._warm.parent
            return self._warm.report

        report = self._ranks.call_together(begin, TransferReport | None)
        if distributed.is_distributed():
            warm_start.share(model)
        return report

    @property
    def _model_name(self) -> str:
        """Name in the zoo of the model that this attempt trains."""
        assignment = self.assignment
        if assignment.zoo is not None:
            return assignment.job_id
        return f"{assignment.job_id}.{assignment.attempt}"

    @property
    def _continues(self) -> bool:
        """Whether a stopped training saved its state."""
        path = self.assignment.checkpoint
        return self.assignment.time_done_s > 0 and path is not None and Path(path).exists()

    def keep(self, **objects: checkpoint.Checkpointable) -> bool:
        """Save these objects if the training is stopped; restore them if it continues now.

        To be called before `epochs`. Without it, a training that was stopped starts over.

        Args:
            objects: By name; all that the training changes, such as model and optimizer.

        Returns:
            Whether they were restored.

        Raises:
            InputError: If the saved state does not fit.
        """
        self._checkpointed = dict(objects)
        self._restored = self._continues
        if self._restored:
            self._parent = checkpoint.restore(Path(str(self.assignment.checkpoint)), objects)
        return self._restored

    def epochs(
        self,
        loader: Iterable[Any] | None = None,
        *,
        steps: int | None = None,
        probe: Probe | None = None,
    ) -> Iterator[Steps]:
        """The epochs to train, until the target, the last epoch, or the cost bound.

        An epoch ends where the next one is asked for: what the script does in between, such as
        its validation, is measured with it.

        Args:
            loader: Gives the batches of an epoch; where slices are measured, as many as
                `samples_per_epoch` says.
            steps: How many there are; by default ``len(loader)``. Where it is not known, power
                limits are measured by whole epochs.
            probe: Given a batch size, trains with it and yields after each step. A policy may ask
                for some steps of other batch sizes, to measure them, when the session ends with its
                target reached. The objects of `keep` are put back then; what else these steps
                change is up to the script. Not called where the training has several processes.
        """
        if self._begun:
            raise InputError("epochs() can be used once in a session; make a session a training")
        if steps is None:
            steps = _length(loader)
        assignment = self.assignment
        if self._restored:
            self._epochs = assignment.epochs_done
            self._before = assignment.time_done_s, assignment.energy_done_j or 0.0
        self._begun = True
        self._probe, self._reports = probe, assignment.reports

        if assignment.zoo is not None and self._warm is None and distributed.is_leader():
            raise InputError(
                "the run has a zoo: call warm_start() before epochs(), so that the model can start "
                "from others and enter the zoo"
            )

        def begin() -> Cause | None:
            self._meter.begin()
            self._spent_before = self._cost(*self._spent())
            if assignment.slice is not None and distributed.is_leader():
                epoch_steps = self._check_steps(steps)
                self._profiling = SliceProfiler(
                    assignment.slice, self.batch_size, epoch_steps, self._reading, self._limit
                )
            elif assignment.profile_w and self._limiter.allowed:
                least_s = 0.0 if self._meter.how == "synthetic" else COUNTED_S
                self._profiling = PowerProfiler(
                    assignment.profile_w, steps, self._reading, self._limit, least_s
                )
            return self._end_cause()

        self._cause = self._ranks.call_together(begin, Cause | None)
        while self._cause is None:
            yield self._begin_epoch(loader)
            self._end_epoch()
        self._signals.stepping = False

    def step(self) -> None:
        """Note a step; iterating over an epoch of a loader does it by itself.

        A training that shall stop leaves the script's loop here; one of several processes at the
        end of the epoch, since all of them must stop at once.
        """
        self._signals.stepping = True
        self._heartbeat.beat()
        if self._stop_requested() and not distributed.is_distributed():
            raise Stopped(whole=True)
        if self._profiling is not None:
            self._profiling.step()
            if not self._profiling.waits:
                self._take_profile()

    @property
    def steps_to_reading(self) -> int | None:
        """Number of steps until power is read next, at least; None if nothing is measured."""
        return None if self._profiling is None else self._profiling.steps_to_reading

    def _steps_at(self, batch_size: int) -> float:
        """Steps of an epoch at a batch size."""
        return self.assignment.samples_per_epoch / batch_size

    def _check_steps(self, steps: int | None) -> float:
        """Steps of an epoch; a loader must have those of `samples_per_epoch`, within one."""
        expected = self._steps_at(self.batch_size)
        if steps is not None and abs(steps - expected) > 1:
            raise InputError(
                f"found {steps} steps an epoch with batch size {self.batch_size}, but "
                f"samples_per_epoch={self.assignment.samples_per_epoch:g}; slices compare batch "
                "sizes by it: both must agree"
            )
        return steps or expected

    def report(self, metric: float) -> None:
        """Report the metric of this epoch; the last report of an epoch counts.

        Raises:
            InputError: If it is no number, or no epoch is being done.
        """
        if not self._open:
            raise InputError("report() belongs into the loop over epochs()")
        try:
            self._metric = float(metric)
        except (TypeError, ValueError) as error:
            raise InputError(f"found the metric {metric!r}; must be a number") from error

    def sleep_until(self, time_s: float) -> bool:
        """Sleep until a time of the run (s), another power limit, or a stop, as rehearsals do.

        Returns:
            Whether the training continues, if the time has not come.
        """
        from wattkeeper.live.wire.clock import RemoteWallClock, run_clock

        wall = run_clock()
        if self._knobs is not None:
            return self._knobs.sleep_until(time_s, self.power_limit_w)
        if isinstance(wall, RemoteWallClock):
            return wall.sleep_with_limit(time_s, None)[0]
        wall.sleep_until(time_s)
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if os.getpid() != self._pid:  # a worker that the script forked
            return False
        self._signals.raises = False
        with ExitStack() as stack:
            stack.callback(self._signals.resend)
            whole = isinstance(error, Stopped) and error.whole
            stack.callback(self._ranks.leave, None if whole else error)
            stack.push(self._resources)
            stack.callback(self._signals.restore)
            stack.callback(self._heartbeat.end)
            self._end(error)
        return isinstance(error, Stopped)

    def _begin_epoch(self, loader: Iterable[Any] | None) -> Steps:
        self._open, self._metric = True, None
        if self._profiling is not None:
            self._profiling.begin_epoch()
        return Steps(self, loader, self._epochs + 1)

    def _end_epoch(self) -> None:
        self._cause, stops = self._ranks.call_together(self._epoch_done, tuple[Cause | None, bool])
        if stops and self._cause is None:
            raise Stopped(whole=True)

    def _epoch_done(self) -> tuple[Cause | None, bool]:
        """Report an epoch; why it was the last one, and whether the training shall stop."""
        self._heartbeat.rest()
        profiled = self._profiling is not None
        if self._profiling is not None:
            self._profiling.end_epoch()
        if isinstance(self._profiling, PowerProfiler):
            self._take_profile()
        _synchronise()
        self._open = False
        self._epochs += 1
        time_s, energy_j = self._spent()
        cost = self._cost(time_s, energy_j)
        if not (profiled or self._limit_changed):
            self._costs.append(cost - self._spent_before)
        self._limit_changed = False
        self._spent_before = cost
        cause = self._end_cause()
        if cause is None and self._profiling is not None:
            self._take_profile()
            self._limit_changed = False
            cause = self._end_cause()
        continues = self._coordinator.report_epoch(
            EpochReport(self._epochs, self._metric, time_s, energy_j, cause is not None)
        )
        if self._knobs is not None:
            self._knobs.take_over_stated()
        return cause, not continues or self._stop_requested()

    def _stop_requested(self) -> bool:
        return self._signals.requested or self._heartbeat.stop.is_set()

    def _end_cause(self) -> Cause | None:
        """Why there is no further epoch; None if there is one, as while a slice is trained."""
        if self._reaches_target():
            return "reached"
        if self._epochs >= self.assignment.max_epochs:
            return "epochs"
        if isinstance(self._profiling, SliceProfiler):
            return None
        return "bound" if self._crosses_bound() else None

    def _reaches_target(self) -> bool:
        target, metric = self.assignment.target, self._metric
        if target is None or metric is None:
            return False
        return metric >= target if self.assignment.higher_is_better else metric <= target

    def _crosses_bound(self) -> bool:
        """Whether one more epoch, at the mean cost of those at this limit, is too much."""
        bound = self.assignment.cost_bound
        if math.isinf(bound):
            return False
        if self._costs:
            more = sum(self._costs) / len(self._costs)
        elif self._epoch_cost is not None:
            more = self._epoch_cost
        elif self._epochs:
            more = self._spent_before / self._epochs
        else:
            return False
        return self._spent_before + more > bound

    def _take_profile(self) -> None:
        """Report what was measured, once that is over, and do what follows."""
        profiling = self._profiling
        if profiling is None or not profiling.over:
            return
        profile = tuple(profiling.measurements)
        self._measured += profile
        answer = self._report_profile(profile)
        if isinstance(answer, Slice):
            assert isinstance(profiling, SliceProfiler), "no slice follows a profile"
            profiling.begin(answer)
            return
        assert answer is not None, "an attempt has a power limit"
        self._profiling, self._limit_changed = None, True
        self._limit(answer)
        for point in self._measured:
            if point.power_limit_w == answer:
                energy_j = point.average_power_w * point.time_per_epoch_s
                self._epoch_cost = self._cost(point.time_per_epoch_s, energy_j)

    def _report_profile(
        self, measured: tuple[Measurement, ...], reached: bool = False
    ) -> float | Slice | None:
        report = ProfileReport(measured, self._reports, *self._spent(), reached)
        self._reports += 1
        return self._coordinator.report_profile(report)

    def _train_probes(self) -> None:
        """Train slices of other batch sizes, as long as the policy asks for some."""
        probe, limit_w = self._probe, self.power_limit_w
        if probe is None or not self.assignment.probes or distributed.is_distributed():
            return
        if self._knobs is not None:
            self._knobs.end()
            self._knobs = None
        try:
            train_slices(
                probe, self._checkpointed, self._ask_for_slice, self._begin_slice, self._goes_on
            )
        finally:
            self._profiling = None
            if limit_w is not None:
                self._limit(limit_w)
            time_s, energy_j = self._spent()
            self.outcome = self.outcome._replace(time_s=time_s, energy_j=energy_j)

    def _ask_for_slice(self, measured: tuple[Measurement, ...]) -> Slice | None:
        answer = self._report_profile(measured, reached=True)
        assert answer is None or isinstance(answer, Slice), "the attempt has reached its target"
        return answer

    def _begin_slice(self, piece: Slice) -> SliceProfiler:
        size = piece.batch_size or self.batch_size
        self._profiling = SliceProfiler(
            piece, size, self._steps_at(size), self._reading, self._limit
        )
        return self._profiling

    def _goes_on(self) -> bool:
        """Note a step of a slice of another batch size; whether the next one may follow."""
        self._heartbeat.beat()
        return not self._stop_requested()

    def _change_limit(self, limit_w: float) -> None:
        """Put another limit in force; what epochs cost from now on is not known yet."""
        if limit_w != self.power_limit_w:
            self._limit(limit_w)
            self._costs, self._epoch_cost, self._limit_changed = [], None, True

    def _limit(self, limit_w: float) -> None:
        if self._limiter.allowed:
            self._limiter.set_w(limit_w)
            self.power_limit_w = limit_w

    def _reading(self) -> Reading:
        """Time and energy now, after waiting for the GPU."""
        _synchronise()
        return self._meter.read()

    def _spent(self) -> tuple[float, float | None]:
        reading = self._meter.read()
        time_s = self._before[0] + reading.time_s
        return time_s, None if reading.energy_j is None else self._before[1] + reading.energy_j

    def _cost(self, time_s: float, energy_j: float | None) -> float:
        return self._objective.cost(energy_j or 0.0, time_s, self.assignment.max_power_w)

    def _end(self, error: BaseException | None) -> None:
        if self._open and self._metric is not None and error is None:
            try:
                self._end_epoch()
            except Stopped as stopped:
                error = stopped
        cause, message = self._classify_end(error)
        assignment, epochs = self.assignment, self._epochs
        saved = cause == "stopped" and self._save_checkpoint(error)
        if not self._begun or (cause == "stopped" and self._restored and not saved):
            epochs = assignment.epochs_done
        try:
            before = assignment.time_done_s, assignment.energy_done_j
            time_s, energy_j = self._spent() if self._begun else before
        except DeviceError as lost:
            message, time_s, energy_j = message or str(lost), self._before[0], None
        limits = assignment.power_limit_w, assignment.slice
        asked = bool(assignment.profile_w) or any(each is not None for each in limits)
        self.outcome = AttemptResult(
            cause,
            epochs,
            time_s,
            energy_j,
            self.power_limit_w,
            self._limiter.allowed or not asked,
            self._meter.how,
            message,
        )
        refusal = self._store_model()
        if refusal and assignment.zoo is not None:  # the run would count on a model without weights
            self.outcome = self.outcome._replace(cause="failed", message=refusal)
        with ExitStack() as stack:
            stack.callback(self._report_end, error)
            if error is None and self._is_done:
                self._train_probes()

    def _report_end(self, error: BaseException | None) -> None:
        try:
            self._coordinator.end(self.outcome)
        except EnvironmentLacks as lacks:
            if error is None or isinstance(error, Stopped):
                raise
            log.warning("the outcome was not stored: %s", lacks)

    @property
    def _is_done(self) -> bool:
        """Whether the outcome is that the training did what it should."""
        done = {"reached"} if self.assignment.target is not None else {"epochs", "left"}
        return self.outcome.cause in done

    def _store_model(self) -> str:
        """Add a model that is done to the zoo; the reason of a refusal, or an empty text."""
        warm, metric, name = self._warm, self._metric, self._model_name
        if warm is None or not self._is_done:
            return ""
        if metric is None:
            return "no metric was reported in the last epoch: the zoo needs the model's accuracy"
        try:
            refusal = warm.zoo.add(
                warm.graph,
                warm.model.state_dict(),
                task=self._arguments.job,
                accuracy=metric,
                name=name,
                parent=self._parent,
            ).reason
        except (WattkeeperError, OSError) as lacks:
            refusal = str(lacks)
        if refusal:
            log.warning("the zoo did not take %s: %s", name, refusal)
        return refusal

    def _save_checkpoint(self, error: BaseException | None) -> bool:
        """Save the state, unless a step was interrupted; whether it is saved, by any process."""
        path = self.assignment.checkpoint
        if not (
            isinstance(error, Stopped) and error.whole and self._checkpointed and path is not None
        ):
            return False
        if distributed.is_leader():
            checkpoint.save(Path(path), self._checkpointed, self._parent)
        return True

    def _classify_end(self, error: BaseException | None) -> tuple[Cause, str]:
        """The cause, and the message of a failed script."""
        if self._cause is not None:
            return self._cause, ""
        if isinstance(error, Stopped | KeyboardInterrupt):
            return "stopped", ""
        if error is None or (isinstance(error, SystemExit) and not error.code):
            if not self._epochs:
                log.warning("%s did no epoch: nothing is learnt of it", self.assignment.job_id)
                return "stopped", "its script did no epoch"
            return ("epochs" if self._epochs >= self.assignment.max_epochs else "left"), ""
        return "failed", cut_message(f"{type(error).__name__}: {error}", 500)


def _length(loader: Any) -> int | None:
    """Number of batches of a loader; None if it has no length."""
    try:
        return len(loader)
    except TypeError:
        return None


def _synchronise() -> None:
    """Wait until the GPU is idle, if torch uses one."""
    import sys

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()

"""The session: three lines in a training script that save energy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from wattkeeper.live.session import distributed
from wattkeeper.live.session.arguments import Rule, SessionArguments, scale_learning_rate
from wattkeeper.live.session.checkpoint import Checkpointable, KeptObjects, NoModel, continues
from wattkeeper.live.session.connection import choose_connection
from wattkeeper.live.session.epochs import Epochs, Steps
from wattkeeper.live.session.heartbeat import Heartbeat
from wattkeeper.live.session.instruments import Instruments, synchronise
from wattkeeper.live.session.profiling import AssignmentProfiler, Probe
from wattkeeper.live.session.termination import Stopped, Terminations
from wattkeeper.live.wire.messages import Assignment, AttemptResult, Cause, EpochReport
from wattkeeper.policies.errors import DeviceError, EnvironmentLacks, InputError

if TYPE_CHECKING:
    from torch import nn

    from wattkeeper.live.session.warm_start import WarmStart
    from wattkeeper.live.weight_transfer.program.tracing import Inputs
    from wattkeeper.live.weight_transfer.report import TransferReport
    from wattkeeper.policies.registry import PolicyConfig

log = logging.getLogger("wattkeeper.session")


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
        self._connection = choose_connection(self._arguments)
        self._instruments = Instruments(power_control)
        self._epochs = Epochs()
        self._profiling = AssignmentProfiler(self._instruments, self._epochs.bound)
        self._kept = KeptObjects()
        self._model: NoModel | WarmStart = NoModel()
        self._probe: Probe | None = None

    def __enter__(self) -> Session:
        self._ranks = distributed.Ranks()
        with ExitStack() as stack:
            self.assignment = self._connection.begin(self._instruments, self._ranks, stack)
            self._heartbeat = Heartbeat(self._connection.coordinator, self.assignment.lease_s)
            can_change = self.assignment.retunes and self._instruments.limiter.allowed
            self._watch = self._connection.watch_limit(
                can_change, self._profiling.change_limit, self._heartbeat.stop
            )
            stack.callback(self._watch.end)
            self._signals = Terminations()
            self._resources = stack.pop_all()
        try:
            self._heartbeat.begin()
            self._signals.begin()
            if self.assignment.power_limit_w is not None:
                self._instruments.limit(self.assignment.power_limit_w)
            self._watch.begin()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    @property
    def power_limit_w(self) -> float | None:
        """The limit in force, W; None if not known."""
        return self._instruments.power_limit_w

    @property
    def batch_size(self) -> int:
        """Samples a step, over all GPUs."""
        return self.assignment.batch_size

    @property
    def reached(self) -> bool:
        """Whether the target was reached; known once it ended."""
        return self.outcome.cause == "reached"

    def learning_rate(self, rate: float, rule: Rule = "linear") -> float:
        """The learning rate for the batch size, given that for the default batch size.

        See `wattkeeper.live.session.arguments.Rule` for the rules and where they are from.
        """
        default = self.assignment.default_batch_size
        return scale_learning_rate(rate, self.batch_size, default, rule)

    def warm_start(
        self,
        model: nn.Module,
        zoo: str | Path,
        *,
        older: Sequence[nn.Module] = (),
        inputs: Inputs | None = None,
        policy: str | PolicyConfig = "relative",
        mutated_from: str | None = None,
        evaluate: Callable[[nn.Module], float] | None = None,
    ) -> TransferReport | None:
        """Fill a model from one that a zoo holds of this job; a policy chooses which.

        In a process that a live run with a zoo started, the run's zoo and the parent that its
        policy chose replace `zoo`, `policy`, `mutated_from` and `evaluate`.

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
            evaluate: Returns the metric of a filled copy of the model on validation data, for a
                policy that has several parents tried. It is in no measurement: no epoch has begun.

        Returns:
            What became of each tensor; None if nothing was taken.

        Raises:
            InputError: If a module cannot be traced, the smaller metric is the better one, the
                policy chooses no parents, or `evaluate` is missing or would not be called.
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

        def begin() -> TransferReport | None:
            if not distributed.is_leader():
                return None
            request = model, zoo, older, inputs, policy, mutated_from, evaluate
            started = warm_start.begin(self.assignment, self._arguments.job, *request)
            self._model = started
            if not continues(self.assignment):
                self._kept.parent = started.parent
            return started.report

        report = self._ranks.call_together(begin, TransferReport | None)
        if distributed.is_distributed():
            warm_start.share(model)
        return report

    def keep(self, **objects: Checkpointable) -> bool:
        """Save these objects if the training is stopped; restore them if it continues now.

        To be called before `epochs`. Without it, a training that was stopped starts over.

        Args:
            objects: By name; all that the training changes, such as model and optimizer.

        Returns:
            Whether they were restored.

        Raises:
            InputError: If the saved state does not fit.
        """
        return self._kept.keep(objects, self.assignment)

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
        epochs, assignment, instruments = self._epochs, self.assignment, self._instruments
        if epochs.begun:
            raise InputError("epochs() can be used once in a session; make a session a training")
        if self._kept.restored:
            epochs.done = assignment.epochs_done
            instruments.before_s = assignment.time_done_s
            instruments.before_j = assignment.energy_done_j or 0.0
        epochs.begun, self._probe = True, probe
        self._model.check_zoo(assignment)

        def begin() -> Cause | None:
            instruments.meter.begin()
            epochs.bound.begin(assignment, *instruments.spent())
            in_epoch = _length(loader) if steps is None else steps
            self._profiling.begin(assignment, self._connection.coordinator, in_epoch)
            return epochs.why_last(assignment)

        epochs.cause = self._ranks.call_together(begin, Cause | None)
        while epochs.cause is None:
            number = epochs.begin_epoch()
            self._profiling.begin_epoch()
            yield Steps(number, loader, self.step)
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
        self._profiling.step()

    @property
    def steps_to_reading(self) -> int | None:
        """Number of steps until power is read next, at least; None if nothing is measured."""
        return self._profiling.steps_to_reading

    def report(self, metric: float) -> None:
        """Report the metric of this epoch; the last report of an epoch counts.

        Raises:
            InputError: If it is no number, or no epoch is being done.
        """
        self._epochs.report(metric)

    def sleep_until(self, time_s: float) -> bool:
        """Sleep until a time of the run (s), another power limit, or a stop, as rehearsals do.

        Returns:
            Whether the training continues, if the time has not come.
        """
        return self._watch.sleep_until(time_s, self.power_limit_w)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not self._signals.is_own:  # a worker that the script forked
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

    def _end_epoch(self) -> None:
        cause, stops = self._ranks.call_together(self._report_epoch, tuple[Cause | None, bool])
        self._epochs.cause = cause
        if stops and cause is None:
            raise Stopped(whole=True)

    def _report_epoch(self) -> tuple[Cause | None, bool]:
        """Report an epoch; why it was the last one, and whether the training shall stop."""
        epochs = self._epochs
        self._heartbeat.rest()
        self._profiling.end_epoch()
        synchronise()
        time_s, energy_j = self._instruments.spent()
        epochs.end_epoch(time_s, energy_j)
        cause = epochs.why_last(self.assignment)
        if cause is None:
            self._profiling.begin_next()
            cause = epochs.why_last(self.assignment)
        continues = self._connection.coordinator.report_epoch(
            EpochReport(epochs.done, epochs.metric, time_s, energy_j, cause is not None)
        )
        self._watch.take_over_stated()
        return cause, not continues or self._stop_requested()

    def _stop_requested(self) -> bool:
        return self._signals.requested or self._heartbeat.stop.is_set()

    def _end(self, error: BaseException | None) -> None:
        """Make the outcome, and report it."""
        epochs, kept, assignment = self._epochs, self._kept, self.assignment
        if epochs.open and epochs.metric is not None and error is None:
            try:
                self._end_epoch()
            except Stopped as stopped:
                error = stopped
        cause, message = epochs.why_ended(error, assignment)
        is_whole = cause == "stopped" and isinstance(error, Stopped) and error.whole
        saved, done = is_whole and kept.save(assignment), epochs.done
        if not epochs.begun or (cause == "stopped" and kept.restored and not saved):
            done = assignment.epochs_done
        time_s, energy_j = assignment.time_done_s, assignment.energy_done_j
        try:
            if epochs.begun:
                time_s, energy_j = self._instruments.spent()
        except DeviceError as lost:
            message = message or str(lost)
            time_s, energy_j = self._instruments.before_s, None
        asked = assignment.power_limit_w, assignment.slice, assignment.profile_w or None
        self.outcome = AttemptResult(
            cause,
            done,
            time_s,
            energy_j,
            self.power_limit_w,
            self._instruments.limiter.allowed or asked == (None, None, None),
            self._instruments.meter.how,
            message,
        )
        if self._is_done:
            refusal = self._model.enter_zoo(epochs.metric, kept.parent)
            if refusal and assignment.zoo is not None:  # the run would count on its weights
                self.outcome = self.outcome._replace(cause="failed", message=refusal)
        with ExitStack() as stack:
            stack.callback(self._report_end, error)
            if error is None and self._is_done:
                self._train_others()

    @property
    def _is_done(self) -> bool:
        """Whether the outcome is that the training did what it should."""
        done = {"reached"} if self.assignment.target is not None else {"epochs", "left"}
        return self.outcome.cause in done

    def _train_others(self) -> None:
        """Train slices of other batch sizes, as long as the policy asks for some."""
        if self._probe is None or not self.assignment.probes or distributed.is_distributed():
            return
        self._watch.end()
        try:
            self._profiling.train_others(self._probe, self._kept, self._note_step)
        finally:
            time_s, energy_j = self._instruments.spent()
            self.outcome = self.outcome._replace(time_s=time_s, energy_j=energy_j)

    def _note_step(self) -> bool:
        """Note a step of a slice of another batch size; whether the next one may follow."""
        self._heartbeat.beat()
        return not self._stop_requested()

    def _report_end(self, error: BaseException | None) -> None:
        try:
            self._connection.coordinator.end(self.outcome)
        except EnvironmentLacks as lacks:
            if error is None or isinstance(error, Stopped):
                raise
            log.warning("the outcome was not stored: %s", lacks)


def _length(loader: Any) -> int | None:
    """Number of batches of a loader; None if it has no length."""
    try:
        return len(loader)
    except TypeError:
        return None

"""The zoo of a search, and the backend that trains in this process."""

import math
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from wattkeeper.live.search.search import TASK, SearchRun
from wattkeeper.live.search.training_log import FinishedTraining
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.retain import Retention
from wattkeeper.policies.points.views import Configuration, Options
from wattkeeper.policies.registry import find_config
from wattkeeper.policies.zoo_views import ChildModel, TrainedModel
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.decided import AttemptTotals, Decision, Inheritance, Tuned
from wattkeeper.sim.engine.backend import SIMULATED, Backend
from wattkeeper.sim.engine.zoo import BYTES, FinishedModel
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.hosting import Host
from wattkeeper.sim.kernel.loop import Callback

UNKNOWN: Final = math.nan
"""A quantity that no meter measures, such as the power and energy of most CPUs."""


class SearchZoo:
    """The world's zoo of a search, which keeps all trained networks.

    `stores` says whether they are stored on disk, as parents of later ones.

    Attributes:
        done: The models that were trained, in order.
        size_bytes: Size of their parameters.
    """

    def __init__(self, search: SearchRun, stores: bool) -> None:
        self.done: list[FinishedModel] = []
        self.size_bytes = 0
        self._search = search
        search.stores = stores

    def engage(self, host: Host) -> None:
        """Nothing is ever evicted."""
        host.engage(find_config("retain", "keep-all"))

    def child(self, job: Job) -> ChildModel | None:
        """The model that a job trains; None if it has none."""
        return None if job.model is None else self._search.child(job.model)

    def models(self) -> Sequence[TrainedModel]:
        """All trained networks, in order."""
        return self._search.models

    def work_left(self, job: Job, parent: str) -> float:
        """1: the benefit of a parent is measured by the training."""
        return 1.0

    def work(self, job: Job, parent: str) -> float:
        """Unknown: NaN. The benefit of a parent is measured by the training."""
        return UNKNOWN

    def offer(
        self, job: Job, now_s: float, parent: str | None, saved_s: float, accuracy: float | None
    ) -> Retention:
        """Show the model to policies from now on."""
        assert job.model is not None
        training = self._search.finish(job.model)
        self.size_bytes += BYTES * training.parameters
        self.done.append(
            FinishedModel(
                job.number,
                now_s,
                parent,
                training.coverage,
                UNKNOWN,
                training.accuracy,
                True,
                len(self.done) + 1,
                self.size_bytes,
            )
        )
        return Retention(admit=True)


class InProcessBackend(Backend):
    """Trains a job's network when its attempt begins; the clock advances by the measured time.

    Its source submits one network at a time, so that none slows another one down.

    Attributes:
        search: The search.
        trained: The trainings, in the order in which they ended.
    """

    capabilities = SIMULATED._replace(
        host="a search that trains in one process", foresight=False, trial="trained"
    )

    def __init__(
        self, env: SimulationEnvironment, search: SearchRun, batch_size: int, most_epochs: int
    ) -> None:
        self.env = env
        self.trained: list[FinishedTraining] = []
        self.search = search
        self._batch_size, self._most_epochs = batch_size, most_epochs

    def options(self, job: Job, gpu_type: str) -> Options:
        """One batch size; there is no power limit to choose."""
        limits_w = ((math.inf,),)
        return Options(
            f"{TASK}@{gpu_type}x1",
            gpu_type,
            1,
            (self._batch_size,),
            limits_w,
            self._batch_size,
            UNKNOWN,
            self._most_epochs,
        )

    def most_power_w(self, job: Job, gpu_type: str) -> float:
        """Unknown: NaN."""
        return UNKNOWN

    @override
    def try_parents(self, attempt: Attempt, configuration: Configuration) -> str:
        assert configuration.trial is not None
        epochs = configuration.trial.epochs
        return self.search.try_parents(str(attempt.job.model), configuration.parents, epochs)

    def run(self, attempt: Attempt, inheritance: Inheritance, limit_w: float) -> Execution:
        """Refuse: every job of a search is of its workload."""
        raise PolicyError(f"{attempt.job.job_id} has no workload", "configure")

    def train(self, attempt: Attempt, decision: Decision, inheritance: Inheritance) -> Execution:
        """Train in this process."""
        return _InProcessTraining(self, attempt, decision)


class _InProcessTraining(Execution):
    """A training that is over before the clock reaches its end."""

    def __init__(self, backend: InProcessBackend, attempt: Attempt, decision: Decision) -> None:
        super().__init__(attempt)
        self._backend, self._decision = backend, decision

    def go_on(self, delay_s: float) -> None:
        """Train, and report the end when the time that it took is over."""
        env, job = self._backend.env, self.attempt.job
        parent = self._decision.configuration.parent
        training = self._backend.search.train(str(job.model), parent)
        overhead_s = delay_s + training.overhead_s
        self.attempt.add_overhead(overhead_s, 0.0)
        over_s = env.now_s + overhead_s + training.total_time_s
        env.schedule_at(over_s, Callback(self._end, training))

    def _end(self, training: FinishedTraining) -> None:
        self._backend.trained.append(training)
        energy_j = UNKNOWN if training.total_energy_j is None else training.total_energy_j
        decision = self._decision
        tuned = decision if isinstance(decision, Tuned) else decision.at_present_limit()
        totals = AttemptTotals(training.total_epochs, training.total_time_s, energy_j, True)
        self._backend.listener.ended(self.attempt, tuned, totals)

    def pause(self) -> None:
        """Refuse.

        Raises:
            PolicyError: The training is over already.
        """
        raise PolicyError(
            f"{self.attempt.job.job_id} cannot be preempted: it trains in process", "select"
        )

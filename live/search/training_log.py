"""Log of finished trainings on disk, complete after every training."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from wattkeeper.live.wire.messages import EnergySource
from wattkeeper.policies.errors import StoreError
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.private import read_own_file
from wattkeeper.traces.files.seals import seal_json, unseal_json


class FinishedTrial(BaseModel):
    """A trial of several parents before a training, and what those cost that lost.

    Attributes:
        parents: The parents, the most promising first.
        rung: Epochs of each before the first halving.
        accuracies: Best validation accuracy of each until it lost or the trial was over.
        trained: Epochs of each until then.
        epochs: Epochs of those that lost.
        work: These, and the forward passes over the validation images that compared their initial
            weights, each as a third of a training pass; times parameters.
        time_s: Time of those that lost, as that of the training, s.
        energy_j: Energy of those, J; None where nothing measured it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parents: tuple[str, ...]
    rung: int
    accuracies: tuple[float, ...]
    trained: tuple[int, ...]
    epochs: int
    work: float
    time_s: float
    energy_j: float | None = None


class FinishedTraining(BaseModel):
    """A network that was trained to convergence: a field for each key of its line in the log.

    Attributes:
        variant: Variant of the scenario.
        seed: Seed of the run.
        model: Name of the network.
        mutated_from: The network that it is a mutation of; None for the first.
        settings: Everything else that the result depends on, as text.
        parent: The network whose weights it started from; None: from scratch.
        coverage: Share of its parameters that was filled from the parent.
        parameters: Number of parameters.
        epochs: Number of epochs, including those after the best one.
        best_epoch: The best one; 0 stands for the initial weights.
        work: Epochs times parameters.
        validation_accuracy: Of the best epoch; early stopping and the choice of parents use it.
        accuracy: Test accuracy of the best epoch.
        time_s: CPU time of training, s; wall-clock time where the processor was measured.
        energy_j: Energy of the processor in training, J; None where nothing measured it.
        energy_from: How it was measured.
        power_limit_w: Power limit at the start, W; None where the processor has none.
        graph_s: CPU time of tracing its graph, s.
        query_s: CPU time of choosing its parent, s.
        transfer_s: CPU time of the weight transfers, s.
        trial: The trial of parents before it, whose cost is no part of the above; None: there was
            none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str
    seed: int
    model: str
    mutated_from: str | None
    settings: str
    parent: str | None
    coverage: float
    parameters: int
    epochs: int
    best_epoch: int
    work: int
    validation_accuracy: float
    accuracy: float
    time_s: float
    energy_j: float | None = None
    energy_from: EnergySource = "absent"
    power_limit_w: float | None = None
    graph_s: float
    query_s: float
    transfer_s: float
    trial: FinishedTrial | None = None

    @property
    def total_epochs(self) -> int:
        """Its epochs, and those of a trial."""
        return self.epochs + (self.trial.epochs if self.trial else 0)

    @property
    def total_work(self) -> float:
        """Its work, and that of a trial."""
        return self.work + (self.trial.work if self.trial else 0.0)

    @property
    def total_time_s(self) -> float:
        """Its time, and that of a trial, s."""
        return self.time_s + (self.trial.time_s if self.trial else 0.0)

    @property
    def total_energy_j(self) -> float | None:
        """Its energy, and that of a trial, J; None where nothing measured it."""
        if self.energy_j is None or self.trial is None:
            return self.energy_j
        return None if self.trial.energy_j is None else self.energy_j + self.trial.energy_j

    @property
    def overhead_s(self) -> float:
        """CPU time of using the zoo, s."""
        return self.graph_s + self.query_s + self.transfer_s


def append_training(path: Path, training: FinishedTraining) -> None:
    """Append a training; it is on the disk when this returns.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    line = seal_json(training.model_dump(mode="json")).encode() + b"\n"
    with replace_file(path) as fresh:
        fresh.write_bytes((path.read_bytes() if path.exists() else b"") + line)


def read_trainings(path: Path) -> list[FinishedTraining]:
    """The finished trainings, in the order in which they ended.

    Raises:
        StoreError: If a line is damaged.
    """
    try:
        lines = read_own_file(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror or error}", path) from None
    records = []
    for number, line in enumerate(lines, 1):
        try:
            entry = unseal_json(line)
            if isinstance(entry, dict):
                entry.pop("mutation", None)  # of earlier versions; their settings tell
            records.append(FinishedTraining.model_validate(entry))
        except ValueError as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise StoreError(
                f"damaged: {reason}; remove the line, or the file, to train again",
                f"{path}:{number}",
            ) from None
    return records

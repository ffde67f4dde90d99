"""Trainings that are over, on disk: each is there as soon as it ended, whatever happens next."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from wattkeeper.live.wire.messages import EnergySource
from wattkeeper.policies.errors import EnvironmentLacks, Problem, StoreError
from wattkeeper.traces.files.atomic import replacing_file


class TrainingRecord(BaseModel):
    """A network that was trained to convergence.

    Attributes:
        variant: Of the scenario.
        seed: Of the run.
        model: Name of the network.
        mutated_from: The network that it is a mutation of; None for the first.
        mutation: What was changed.
        settings: Everything else that the result depends on, in words.
        parent: The network whose weights it started from; None: from scratch.
        coverage: Share of its parameters that were filled from the parent.
        parameters: How many it has.
        epochs: How many were done, those after the best one too.
        best_epoch: Which one counts; 0: the weights that it began with.
        work: Epochs times parameters.
        validation_accuracy: Of the best epoch; stopping and the choice of parents see it.
        accuracy: On the test images, of the best epoch.
        time_s: CPU time of training, s; the host's where the processor was measured.
        energy_j: Energy of the processor in training, J; None where nothing measured it.
        energy_from: What measured it.
        power_limit_w: In force as it began, W; None where the processor takes none.
        graph_s: CPU time of making its graph, s.
        query_s: CPU time of the choice of its parent, s.
        transfer_s: CPU time of filling it from the parent, s.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str
    seed: int
    model: str
    mutated_from: str | None
    mutation: str
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

    @property
    def overhead_s(self) -> float:
        """CPU time that only a zoo costs, s."""
        return self.graph_s + self.query_s + self.transfer_s


def append(path: Path, training: TrainingRecord) -> None:
    """Write a training down; when this returns, it is on the disk.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    line = training.model_dump_json().encode() + b"\n"
    try:
        there = path.read_bytes() if path.exists() else b""
        with replacing_file(path) as made, made.open("wb") as file:
            file.write(there + line)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise EnvironmentLacks(f"cannot write {path}: {error.strerror or error}") from error


def read(path: Path) -> list[TrainingRecord]:
    """The trainings that are over, in the order in which they ended.

    Raises:
        StoreError: If a line is damaged.
    """
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found.append(TrainingRecord.model_validate_json(line))
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise StoreError(
                Problem(f"damaged: {reason}; remove the file to train again", f"{path}:{number}")
            ) from None
    return found

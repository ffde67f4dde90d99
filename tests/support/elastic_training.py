"""Elastic trainings whose workers end themselves at a place, or can be killed from outside."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from wattkeeper.live import train_elastic
from wattkeeper.live.elastic.records import ElasticResults
from wattkeeper.live.elastic.replica import ModuleReplica, train_alone
from wattkeeper.live.host.process_identity import start_ticks

WIDTH, CLASSES = 32, 4
BATCH, MICROBATCH = 32, 4
STEPS = 60


def sum_of_losses(model: nn.Module, step: int, first: int, end: int) -> Tensor:
    """The loss of some samples, which follow from their numbers."""
    inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))[first:end]
    labels = inputs[:, :CLASSES].argmax(1)
    return nn.functional.cross_entropy(model(inputs), labels, reduction="sum")


class FragileReplica(ModuleReplica):
    """A small network with momentum, whose process does at a place what files order it to.

    `kill at PLACE *`: the process that removes it ends with SIGKILL. `notice at PLACE *`: it tells
    itself that it will be lost, and is killed ten steps later. `cut at PLACE *`: it shuts its
    connections to other workers down, and lives on. `mark at PLACE *`: it removes it.
    `hold at PLACE`: all wait as long as it is there. Places are `make`, `step N`, `save` and `load`
    of a state.

    Args:
        folder: Of these files; its process is noted there, too (`pid-*`).
        pause_s: What the gradient of a micro-batch takes longer, s.
    """

    def __init__(self, folder: Path, pause_s: float) -> None:
        self._folder, self._pause_s = folder, pause_s
        self._ends = ""
        torch.manual_seed(7)
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        super().__init__(model, optimizer, sum_of_losses)
        (folder / f"pid-{os.getpid()}").touch()
        self._at("make")

    @override
    def gradient(self, step: int, first: int, end: int) -> tuple[Tensor, float]:
        self._at(f"step {step}")
        if self._is_told(f"notice at step {step}"):
            os.kill(os.getpid(), signal.SIGTERM)
            self._ends = f"step {step + 10}"
        if self._is_told(f"cut at step {step}"):
            cut_connections()
        time.sleep(self._pause_s)
        return super().gradient(step, first, end)

    @override
    def state_dict(self) -> dict[str, Any]:
        self._at("save")
        return super().state_dict()

    @override
    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._at("load")
        super().load_state_dict(state)

    def _at(self, place: str) -> None:
        self._is_told(f"mark at {place}")
        while (self._folder / f"hold at {place}").exists():
            time.sleep(0.005)
        if place == self._ends or self._is_told(f"kill at {place}"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_told(self, what: str) -> bool:
        for order in sorted(self._folder.glob(f"{what} *")):
            try:
                order.unlink()
            except FileNotFoundError:  # another process took it
                continue
            return True
        return False


def cut_connections() -> None:
    """Shut all TCP connections of this process down."""
    for path in filter(Path.is_socket, Path("/proc/self/fd").iterdir()):
        connection = socket.socket(fileno=os.dup(int(path.name)))
        with connection, suppress(OSError):  # it only listens
            if connection.family == socket.AF_INET and connection.getpeername():
                connection.shutdown(socket.SHUT_RDWR)


def fragile(folder: Path, pause_s: float = 0.0) -> partial[FragileReplica]:
    """What makes the replica."""
    return partial(FragileReplica, folder, pause_s)


def train(folder: Path, steps: int = STEPS, **arguments: Any) -> ElasticResults:
    """Train the network on three nodes, with results in the folder `out`."""
    stated: dict[str, Any] = {
        "make": fragile(folder),
        "job": "small",
        "steps": steps,
        "batch": BATCH,
        "microbatch": MICROBATCH,
        "nodes": 3,
        "away_s": 0.2,
        "output": folder / "out",
    }
    return train_elastic(**stated | arguments)


def order(folder: Path, what: str, count: int = 1) -> None:
    """Let so many processes do something at a place, as in `kill at step 20`."""
    for number in range(count):
        (folder / f"{what} {number}").touch()


def workers_of(folder: Path) -> list[int]:
    """The processes of all workers that were ever there."""
    found = [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]
    return [pid for pid in found if pid != os.getpid()]


def living_of(folder: Path) -> list[int]:
    """The processes of the workers that live."""
    return [pid for pid in workers_of(folder) if start_ticks(pid)]


def check(folder: Path, results: ElasticResults, steps: int = STEPS) -> None:
    """The training ended as an undisturbed one, its tables agree, and nothing is left behind."""
    for path in folder.glob("* at *"):
        path.unlink()
    replica, losses = train_alone(fragile(folder), steps, BATCH, MICROBATCH)
    assert list(results.losses) == losses
    trained = fragile(folder)()
    results.restore(trained)
    weights, expected = trained.state_dict()["model"], replica.state_dict()["model"]
    assert all(weights[name].equal(expected[name]) for name in expected)
    rows = pq.read_table(folder / "out" / "shapes.parquet").to_pylist()
    assert sum(row["samples"] for row in rows) == steps * BATCH
    assert sum(row["lost_samples"] for row in rows) == results.lost_steps * BATCH
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        spent_s = row["pause_s"] + row["steps_s"] + row["write_s"]
        assert row["until_s"] - row["time_s"] == pytest.approx(spent_s, abs=1e-6)
        assert 0 <= row["lost_s"] <= row["steps_s"]
        assert following is None or row["until_s"] <= following["time_s"]
    assert not living_of(folder)
    left = {path.name for path in (folder / "out" / "checkpoints").iterdir()}
    assert left <= {"lock"}


def moments(results: ElasticResults) -> list[tuple[str, int]]:
    """Why each shape was chosen, and its nodes."""
    return [(shape.moment, shape.nodes) for shape in results.shapes]

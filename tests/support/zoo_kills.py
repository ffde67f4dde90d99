"""Four processes that add, warm-start, evict and remove models of one zoo, and are killed for it.

Run as a script, since it forks: FOLDER BOUNDED KILLS SEED. It writes FOLDER/log, a line each time
that a process begins or ends something, and FOLDER/errors, what went wrong in one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np

from wattkeeper.live.zoo.zoo import Zoo
from wattkeeper.policies.errors import StoreError
from wattkeeper.policies.matching.graph import Graph, Node, Tensor

PROCESSES = 4
LAYERS = 4
GRAPH = Graph(
    "net",
    tuple(
        Node("linear", (n - 1,), (Tensor(f"{n}.weight", "weight", (16, 16)),))
        for n in range(LAYERS)
    ),
)
MODELS = 12
"""So many fit in the bounded zoo, whatever they share."""


def state(name: str) -> dict[str, np.ndarray]:
    """The tensors of the model of that name: its first layer is one of three that all share."""
    seed = [int(part) for part in name.split("-")]
    seeds = [[seed[-1] % 3], *([*seed, layer] for layer in range(1, LAYERS))]
    layers = [np.random.default_rng(each).normal(size=(16, 16)) for each in seeds]
    return {f"{n}.weight": values.astype(np.float32) for n, values in enumerate(layers)}


class Worker:
    def __init__(self, folder: Path, bounded: bool, name: str) -> None:
        capacity = sum(v.nbytes for v in state("0").values()) * MODELS if bounded else None
        self.zoo = Zoo(folder / "zoo", capacity, "lru" if bounded else "keep-all")
        self.bounded, self.name = bounded, name
        self.rng = np.random.default_rng([int(part) for part in name.split("-")])
        self.log = os.open(folder / "log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def say(self, *words: object) -> None:
        os.write(self.log, (" ".join(map(str, words)) + "\n").encode())

    def live(self) -> None:
        for number in range(10**9):
            parent = self.warm_start()
            name = f"{self.name}-{number}"
            self.say("adding", name)
            added = self.zoo.add(
                GRAPH, state(name), task="t", accuracy=0.9, name=name, parent=parent
            )
            self.say("added", name, added.model_id)
            if not self.bounded and self.rng.random() < 0.7:
                self.remove()

    def warm_start(self) -> int | None:
        models = self.zoo.models()
        if not models:
            return None
        model = models[self.rng.integers(len(models))]
        self.say("starting", model.model_id)
        try:
            found = self.zoo.read(model.model_id)
            if not self.bounded:  # there, the order of additions shows who was evicted
                self.zoo.note_use(model.model_id)
        except StoreError as error:
            if "any more" not in str(error):
                raise
            return None
        for tensor, values in state(model.name).items():
            assert found[tensor].data == values.tobytes(), f"model {model.name} is another one"
        self.say("started", model.model_id)
        return model.model_id

    def remove(self) -> None:
        models = self.zoo.models()
        model = models[self.rng.integers(len(models))].model_id
        self.say("removing", model)
        try:
            self.zoo.remove(model)
        except StoreError as error:
            if "any more" not in str(error):
                raise
        self.say("removed", model)


def fork(folder: Path, bounded: bool, name: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        Worker(folder, bounded, name).live()
    except BaseException:
        with (folder / "errors").open("a") as errors:
            errors.write(traceback.format_exc())
    os._exit(1)


def main(folder: Path, bounded: bool, kills: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pids = [fork(folder, bounded, f"{n}-{n}") for n in range(PROCESSES)]
    for number in range(kills):
        wait_for(folder / "log", int(rng.integers(1, 12)))
        time.sleep(rng.uniform(0, 0.02))
        which = int(rng.integers(PROCESSES))
        kill(pids[which])
        pids[which] = fork(folder, bounded, f"{PROCESSES + number}-{which}")
    for pid in pids:
        kill(pid)


def wait_for(log: Path, lines: int) -> None:
    """Return when so many more lines are there, however slow the machine is, or after 60 s."""
    begun = time.monotonic()
    goal = lines + count(log)
    while count(log) < goal and time.monotonic() < begun + 60:
        time.sleep(0.001)


def count(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), bool(int(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4]))

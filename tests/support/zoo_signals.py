"""Makes zoos and adds a model, with a signal at some call; a script of `signals`."""

from __future__ import annotations

import random
import signal
from collections import Counter
from functools import partial
from pathlib import Path

from tests.support.signals import SIGNALS, attempt
from tests.support.zoo_kills import GRAPH, state
from wattkeeper.live.zoo.zoo import Zoo


def make(folder: Path) -> None:
    """Make a zoo and add a model."""
    Zoo(folder).add(GRAPH, state("1"), task="t", accuracy=0.9, name="1")


def check(folder: Path) -> None:
    """Use a zoo whose making was interrupted."""
    zoo = Zoo(folder)
    before = len(zoo.models())
    make(folder)
    assert [model.name for model in zoo.models()] == ["1"] * (before + 1)
    assert zoo.check() == ()
    assert list((folder / "incoming").iterdir()) == []
    extra = {path.name for path in folder.iterdir()} - {"tensors", "incoming", "lock"}
    assert extra <= {"index.sqlite", "index.sqlite-wal", "index.sqlite-shm"}, extra


def main(folder: str, kills: int | None, seed: int) -> dict[str, int]:
    """Counts of endings of so many makings; None: a SIGKILL at each of their calls."""
    luck = random.Random(seed)
    calls = attempt(partial(make, Path(folder) / "0")).calls
    made: Counter[str] = Counter(calls=calls)
    for number in range(1, (kills or calls) + 1):
        zoo = Path(folder) / str(number)
        at, name = (
            (luck.randint(1, calls), luck.choice(SIGNALS)) if kills else (number, signal.SIGKILL)
        )
        outcome = attempt(partial(make, zoo), at, name)
        made[signal.Signals(-outcome.code).name if outcome.code < 0 else str(outcome.code)] += 1
        if attempt(partial(check, zoo)).code != 0:
            made[f"unusable after {name.name} at {at}"] += 1
    return dict(made)

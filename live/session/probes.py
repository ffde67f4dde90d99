"""Slices of other batch sizes, which a training does once it has reached its target."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wattkeeper.live.session.checkpoint import Checkpointable
from wattkeeper.live.session.power_profiler import SliceProfiler
from wattkeeper.policies.points.views import Measurement, Slice

Probe = Callable[[int], Iterable[Any]]
"""Given a batch size, trains with it, and yields after each step."""

log = logging.getLogger("wattkeeper.session")


def train_slices(
    probe: Probe,
    objects: Mapping[str, Checkpointable],
    ask: Callable[[tuple[Measurement, ...]], Slice | None],
    begin: Callable[[Slice], SliceProfiler],
    goes_on: Callable[[], bool],
) -> None:
    """Train slices of other batch sizes as long as some are asked for; nothing is kept of them.

    A slice that fails, as where its batch size needs too much memory, is the last one.

    Args:
        probe: Trains the steps.
        objects: What these change, which gets back the states that it has now.
        ask: Reports the last slice, nothing at first; returns the next one.
        begin: Begins the measurement of a slice.
        goes_on: Notes a step; whether the next one may follow.
    """
    states: dict[str, Any] | None = None
    piece = ask(())
    try:
        while piece is not None and goes_on():
            try:
                if states is None:
                    states = {n: copy.deepcopy(each.state_dict()) for n, each in objects.items()}
                measured = _train_slice(probe, piece, begin(piece), goes_on)
            except Exception as error:
                log.warning(
                    "a slice of batch size %s failed, and no other one follows: %s: %s",
                    piece.batch_size,
                    type(error).__name__,
                    error,
                )
                return
            piece = ask(measured) if measured else None
    finally:
        for name, state in (states or {}).items():
            objects[name].load_state_dict(state)


def _train_slice(
    probe: Probe, piece: Slice, profiler: SliceProfiler, goes_on: Callable[[], bool]
) -> tuple[Measurement, ...]:
    """What a slice measured; nothing if the training shall stop meanwhile.

    Raises:
        ValueError: If the script trains no step.
    """
    assert piece.batch_size is not None, "the policy's answer was checked"
    steps = iter(probe(piece.batch_size))
    profiler.begin_epoch()
    trained = False
    try:
        for _ in steps:
            trained = True
            profiler.step()
            if not goes_on():
                return ()
            if profiler.over:
                break
    finally:
        close = getattr(steps, "close", None)
        if close is not None:
            close()
    if not trained:
        raise ValueError("the script's `probe` trained no step")
    profiler.end()
    return tuple(profiler.measurements)

"""Sessions of one job, in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wattkeeper.live import Session
from wattkeeper.live.session.store import SessionStore

TERMS: dict[str, Any] = {"batch_sizes": (16, 32), "default_batch_size": 32, "max_epochs": 4}
DRAWN = {100.0: 90.0, 150.0: 120.0, 200.0: 150.0}
"""What the device of the tests draws by its power limit, W."""


def session(**terms: Any) -> Session:
    return Session("mine", **{**TERMS, **terms})


def train(do_step: Callable[[], None] = lambda: None, **terms: Any) -> Session:
    with session(**terms) as found:
        for epoch in found.epochs(range(12)):
            for _ in epoch:
                do_step()
            found.report(epoch.number)
    return found


def history() -> list[dict[str, Any]]:
    return SessionStore().history("mine")

"""Trainings without torch, one after the other: the script that tests of sessions run and kill.

Argument: a JSON object. `sessions`: how many; `log`: a file that gets a line when one begins, does
an epoch, or ends; `epoch_s`: how long an epoch takes; `per_epoch`: what the metric grows by;
`steps`: of an epoch, by default not seen; `kept`: it keeps its state; `marked`: the log gets a
line when a step begins, too; `patient`: it goes on where a
session cannot begin or end; the rest goes to `Session`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from wattkeeper.live import Session
from wattkeeper.policies.errors import EnvironmentLacks


class Count:
    """All that this trains."""

    def __init__(self) -> None:
        self.epochs = 0.0

    def state_dict(self) -> dict[str, float]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.epochs = state["epochs"]


def say(log: str, *words: object) -> None:
    with open(log, "ab", buffering=0) as file:  # noqa: PTH123
        file.write((" ".join(map(str, words)) + "\n").encode())


def train(arguments: dict[str, Any], log: str, epoch_s: float, gain: float, kept: bool) -> None:
    steps, marked = arguments.pop("steps", 0), arguments.pop("marked", False)

    def do_step(step_s: float) -> None:
        if marked:
            say(log, "step")
        time.sleep(step_s)

    with Session(**arguments) as session:
        job_id, attempt = session.assignment.job_id, session.assignment.attempt
        say(log, "begun", job_id, attempt, session.batch_size, os.getpid())
        count = Count()
        if kept:
            session.keep(count=count)
        for epoch in session.epochs(range(steps) if steps else None):
            for _ in epoch if steps else ():
                do_step(epoch_s / steps)
                count.epochs += 1 / steps
            if not steps:
                do_step(epoch_s)
                count.epochs += 1
            session.report(gain * count.epochs)
            say(log, "epoch", job_id, epoch.number, count.epochs)
    say(log, "ended", job_id, attempt, session.outcome.cause, os.getpid())


def run(arguments: dict[str, Any]) -> None:
    arguments = dict(arguments)
    log, sessions = arguments.pop("log"), arguments.pop("sessions", 1)
    how = (arguments.pop("epoch_s", 0.0), arguments.pop("per_epoch", 0.5))
    kept, patient = arguments.pop("kept", False), arguments.pop("patient", False)
    for _ in range(sessions):
        try:
            train(dict(arguments), log, *how, kept)
        except EnvironmentLacks as error:
            if not patient:
                raise
            say(log, "lacks", str(error)[:60])
            time.sleep(0.2)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))

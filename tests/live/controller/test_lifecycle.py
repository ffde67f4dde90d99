"""What an attempt of a live run goes through, on events as its log has them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from wattkeeper.live.controller.attempt import LiveAttempt, LiveSettings, Standing, TrainingSpec
from wattkeeper.live.controller.backend import LiveBackend
from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.controller.event_log import EventLog
from wattkeeper.live.controller.events import Event, ExternalEvent
from wattkeeper.live.controller.virtual_time import VirtualWallClock
from wattkeeper.live.wire.messages import AttemptResult, Begun, EpochReport, Lost
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Configuration, Options, Start
from wattkeeper.policies.profile import Objective
from wattkeeper.sim.attempts.attempt import Attempt
from wattkeeper.sim.attempts.decided import FROM_SCRATCH, AttemptTotals, Decision, Tuned
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec, NodeGroup
from wattkeeper.sim.engine.backend import Listener
from wattkeeper.sim.kernel.loop import Callback
from wattkeeper.sim.kernel.streams import NamedStreams
from wattkeeper.sim.replay.unprofiled import UnprofiledPower

JOB = Job("job", "job", 1, "image", 1, 0.0)
OPTIONS = Options("image@A", "A", 1, (8,), ((250.0,),), 8, 250.0, 9)
TUNED = Tuned(Start(JOB, 1, OPTIONS, 0), Configuration(8), 250.0, False)


class World(Listener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.retunes = self.wants_epochs = self.wants_slices = False
        self.told: list[str] = []

    def holds(self, attempt: Attempt) -> None:
        self.told.append("holds")

    def trains(self, attempt: Attempt) -> None:
        self.told.append("trains")

    def ended(self, attempt: Attempt, tuned: Tuned, totals: AttemptTotals) -> None:
        self.told.append(f"ended after {totals.epochs}")

    def lost(self, attempt: Attempt, decision: Decision, totals: AttemptTotals) -> None:
        self.told.append(f"lost after {totals.epochs}")


class Played:
    """A run that is only played again from a log of events by time (s) and process."""

    def __init__(self, folder: Path, events: Sequence[tuple[float, str, Event]]) -> None:
        self.log = EventLog(folder / "log.sqlite")
        for time_s, process, event in events:
            self.log.add(ExternalEvent(time_s, "job", 1, f"job#1.{process}", event))
        self.env = LiveEnvironment(VirtualWallClock(1e9), self.log)
        self.backend = LiveBackend(
            self.env,
            {("image", 1, "A"): TrainingSpec(OPTIONS, ("true",), target=9.0)},
            ClusterSpec((NodeGroup("A", 1, 1),), {}),
            NamedStreams(1),
            LiveSettings(Objective(0.5), folder, 60.0, {}),
            UnprofiledPower({}),
        )
        self.backend.listener = self.world = World()  # type: ignore[abstract]  # tells enough
        attempt = Attempt(JOB, 1, ((0, 1, 0),), 0, "A", 0.0, 40.0)
        run = self.backend.train(attempt, TUNED, FROM_SCRATCH)
        assert isinstance(run, LiveAttempt)
        self.run = run

    def play(self, *calls: tuple[float, str]) -> list[str]:
        """Pause, resume or stop it at times, s; what the world was told."""
        self.run.go_on(0.0)
        for time_s, name in calls:
            self.env.schedule_at(time_s, Callback(self._call, name))
        with closing(self.log):
            self.env.run()
        return self.world.told

    def _call(self, name: str) -> None:
        if name == "go_on":
            self.run.go_on(0.0)
        elif name == "stop":
            self.run.attempt.is_stopped = True
            self.run.stop()
        else:
            self.run.pause()


EPOCH = EpochReport(1, 5.0, 1.0, None)
REACHED = AttemptResult("reached", 2, 2.0, None)
FAILED = AttemptResult("failed", 1, 1.5, None, message="ValueError: no")
STOPPED = AttemptResult("stopped", 1, 1.5, None)
BEGINS: list[tuple[float, str, Event]] = [(1.0, "a", Begun()), (2.0, "a", EPOCH)]
RESUMES: list[tuple[float, str, Event]] = [(6.0, "b", Begun()), (8.0, "b", REACHED)]
PAUSED = ["holds", "trains", "holds", "trains", "ended after 2"]


@pytest.mark.parametrize(
    ("end", "saved"), [(STOPPED, 1), (FAILED, 0), (Lost("crashed", 1), 0), (Lost("hung"), 0)]
)
def test_a_paused_training_resumes_however_its_process_ended(
    end: Event, saved: int, tmp_path: Path
) -> None:
    played = Played(tmp_path, [*BEGINS, (4.0, "a", end), *RESUMES])
    assert played.play((3.0, "pause"), (5.0, "go_on")) == PAUSED
    assert played.run.saved.epoch == saved
    assert played.run.stopped_run_id == "job#1.a"
    assert [ending.outcome.cause for ending in played.backend.lifecycle.endings] == ["reached"]


@pytest.mark.parametrize("end", [FAILED, Lost("crashed", 1), Lost("hung")])
def test_a_training_that_fails_while_it_runs_is_lost(end: Event, tmp_path: Path) -> None:
    played = Played(tmp_path, [*BEGINS, (4.0, "a", end)])
    assert played.play() == ["holds", "trains", "lost after 1"]
    assert not played.backend.unfinished


def test_an_end_that_comes_while_it_is_paused_is_reported_when_it_has_gpus(tmp_path: Path) -> None:
    played = Played(tmp_path, [*BEGINS, (4.0, "a", REACHED)])
    assert played.play((3.0, "pause")) == ["holds", "trains"]
    assert played.run.standing is Standing.PAUSED
    again = tmp_path / "again"
    again.mkdir()
    told = Played(again, [*BEGINS, (4.0, "a", REACHED)]).play((3.0, "pause"), (5.0, "go_on"))
    assert told == ["holds", "trains", "holds", "ended after 2"]


@pytest.mark.parametrize("end", [STOPPED, FAILED, Lost("crashed", 1)])
def test_a_training_that_tune_ends_has_ended_once_its_process_has(
    end: Event, tmp_path: Path
) -> None:
    played = Played(tmp_path, [*BEGINS, (4.0, "a", end)])
    assert played.play((3.0, "stop")) == ["holds", "trains", "ended after 1"]
    assert [ending.outcome.cause for ending in played.backend.lifecycle.endings] == ["ended"]


@pytest.mark.parametrize("calls", [[(3.0, "pause"), (3.5, "stop")], [(0.5, "stop")]])
def test_without_a_training_process_it_ends_at_once(
    calls: list[tuple[float, str]], tmp_path: Path
) -> None:
    events = BEGINS if len(calls) == 2 else []
    played = Played(tmp_path, events)
    assert played.play(*calls)[-1] == f"ended after {len(events) // 2}"
    assert played.run.standing is Standing.OVER

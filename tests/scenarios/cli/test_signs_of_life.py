"""Commands that take long say that they are at work; an interrupted one ends with 130."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.live_runs import REHEARSED, environment, scenario
from wattkeeper.scenarios.cli import terminal

IMPATIENT = """
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.main import main

terminal.SILENCE_S = 0.02
main(prog_name="wattkeeper")
"""
WAITING = """
import os, time
from wattkeeper.live import Session

with Session("waits", batch_sizes=[8], default_batch_size=8, target=1, max_epochs=2,
             eta=0) as session:
    for epoch in session.epochs(range(3)):
        for _ in epoch:
            while not os.path.exists("go on"):
                time.sleep(0.01)
        session.report(1.0)
"""
AT_WORK = re.compile(r"wattkeeper: at work for [\d,]+ s(, .+: \d+ of \d+)?")
AT_PLACE = Path(__file__).resolve().parents[2] / "support" / "at_place"


def start(
    *arguments: str | Path, folder: Path, script: str = IMPATIENT, **more: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(folder, **more),
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def test_the_longest_silence_is_below_half_a_minute() -> None:
    assert terminal.SILENCE_S <= 25


def test_a_recording_in_a_pipe_says_that_it_is_at_work(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITING)
    arguments = ("record", "--name", "waits", "--repeats", "1", script)
    with start(*arguments, folder=tmp_path, WATTKEEPER_DEVICE="none") as recorder:
        assert recorder.stderr is not None
        lines = [recorder.stderr.readline() for _ in range(3)]
        while "of" not in lines[-1]:  # the script waits for the end of this loop
            assert AT_WORK.fullmatch(lines[-1].strip()), lines
            lines.append(recorder.stderr.readline())
        (tmp_path / "go on").touch()
        _, rest = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, rest
    assert all(AT_WORK.fullmatch(each.strip()) for each in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "quickstart", "--seeds", "2"),
        ("run", "quickstart", "--seeds", "2", "--sweep", "objective.eta=0,1"),
        ("run", "rehearsed.yaml", "--live"),
        ("traces", "import", "csv", "jobs.csv", "--name", "jobs"),
        ("bench", "quickstart"),
        ("zoo", "list", "--zoo", "zoo"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_every_command_says_that_it_is_at_work(arguments: tuple[str, ...], tmp_path: Path) -> None:
    scenario(tmp_path, REHEARSED, recurrences=2)
    (tmp_path / "jobs.csv").write_text("job_id,submit_time_s,duration_s,gpus\na,0,5,1\n")
    with start(*arguments, folder=tmp_path) as process:
        _, said = process.communicate(timeout=300)
    assert AT_WORK.search(said), said
    assert "Traceback" not in said


PLACES = (0, 0.0005, 0.01, 0.3, 0.97)
"""Where `validate` is interrupted, as shares of what it does."""


@pytest.mark.parametrize(
    ("seed", "count"), [(17, 3), pytest.param(1717, 60, marks=pytest.mark.slow)]
)
def test_an_interruption_anywhere_ends_with_130(seed: int, count: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    script = "from wattkeeper.scenarios.__main__ import start; start()"
    places = {"PYTHONPATH": str(AT_PLACE), "PYTHONDONTWRITEBYTECODE": "1"}
    counted = start("validate", "quickstart", folder=tmp_path, script=script, **places,
                    AT_PLACE="0:0", AT_PLACE_COUNT="events")  # fmt: skip
    assert "good;" in counted.communicate(timeout=300)[0]
    events = int((tmp_path / "events").read_text())
    shares = [*PLACES, *(rng.random() for _ in range(count))]
    for share in shares:
        place = 1 + int(share * (events - 1))
        process = start("validate", "quickstart", folder=tmp_path, script=script, **places,
                        AT_PLACE=f"{place}:{signal.SIGINT.value}")  # fmt: skip
        shown, said = process.communicate(timeout=300)
        done = process.returncode == 0 and "good;" in shown  # it came when all was done
        assert done or process.returncode == 130, f"seed {seed}, place {place} of {events}: {said}"
        assert "Traceback" not in said, f"seed {seed}, place {place} of {events}: {said}"

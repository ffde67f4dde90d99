"""Commands that take long say that they are at work; an interrupted one ends with 130."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.support.live_runs import REHEARSED, environment, scenario
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.run.interruptions import INTERRUPTIONS
from wattkeeper.traces.files.digests import digest_file

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
AT_WORK = re.compile(r"wattkeeper: at work for [\d,]+ s(, .+: \d+ of \d+(, now .+, seed \d+)?)?")
ROOT = Path(__file__).resolve().parents[3]
AT_PLACE = ROOT / "tests/support/at_place"


def start(
    *arguments: str | int | Path, folder: Path, script: str = IMPATIENT, **more: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(folder, **more),
        preexec_fn=accept_interruptions,
    )


def accept_interruptions() -> None:
    """A shell may have them ignored."""
    for number in INTERRUPTIONS:
        signal.signal(number, signal.SIG_DFL)


def test_the_longest_silence_is_that_of_the_docs() -> None:
    assert terminal.SILENCE_S == 20
    for page in ("CHANGELOG.md", "docs/promises.md", "docs/live.md"):
        assert "20 s of silence" in (ROOT / page).read_text(encoding="utf-8")


def test_every_output_is_a_sign_of_life() -> None:
    for output in (
        lambda: terminal.write("a line"),
        lambda: terminal.write("a line", err=True),
        lambda: terminal.console().print("a table"),
    ):
        terminal._activity.wrote_s = 0.0
        output()
        assert terminal._activity.wrote_s > 0.0


def test_the_signs_end_with_the_command() -> None:
    for _ in range(3):
        with terminal.signs_of_life():
            assert "wattkeeper-signs-of-life" in {each.name for each in threading.enumerate()}
        assert "wattkeeper-signs-of-life" not in {each.name for each in threading.enumerate()}


def test_hashing_a_large_file_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It leaves the interpreter to other threads."""
    monkeypatch.setattr(terminal, "SILENCE_S", 0.01)
    large = tmp_path / "jobs.parquet"
    with large.open("wb") as file:
        file.truncate(1 << 29)
    with terminal.signs_of_life():
        digest_file(large)
    assert AT_WORK.search(capfd.readouterr().err)


def test_a_reader_that_reads_nothing_does_not_hold_up_the_command(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 512)
    os.set_blocking(writer, True)
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, "run", "quickstart", "--seeds", "2"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=writer,
        env=environment(tmp_path),
        timeout=120,
    )
    os.close(writer)
    os.close(reader)
    assert done.returncode == 0


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
        ("bench", "power-cap"),
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
    ("seed", "count"), [(17, 1), pytest.param(1717, 60, marks=pytest.mark.slow)]
)
def test_an_interruption_anywhere_ends_with_130(seed: int, count: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    script = "from wattkeeper.scenarios.__main__ import start; start()"
    places = {"PYTHONPATH": str(AT_PLACE), "PYTHONDONTWRITEBYTECODE": "1"}
    counted = start(
        "validate",
        "quickstart",
        folder=tmp_path,
        script=script,
        **places,
        AT_PLACE="0:0",
        AT_PLACE_COUNT="events",
    )
    assert "good;" in counted.communicate(timeout=300)[0]
    events = int((tmp_path / "events").read_text())
    shares = [*PLACES, *(rng.random() for _ in range(count))]
    for share in shares:
        place = 1 + int(share * (events - 1))
        number = rng.choice(INTERRUPTIONS)
        process = start(
            "validate",
            "quickstart",
            folder=tmp_path,
            script=script,
            **places,
            AT_PLACE=f"{place}:{number.value}",
        )
        shown, said = process.communicate(timeout=300)
        about = f"seed {seed}, {number.name} at {place} of {events}: {said}"
        done = process.returncode == 0 and "good;" in shown  # it came when all was done
        assert done or process.returncode == 130, about
        assert "Traceback" not in said, about


AT_THE_END = """
import os, signal, sys

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=int(sys.argv.pop(1))):
        kill(pid, number)

last = Last()
sys.stdlib = last  # one of the last things that Python removes
from wattkeeper.scenarios.__main__ import start
start()
"""
IN_SHUTDOWN = """
import atexit, os, signal, sys

number = int(sys.argv.pop(1))
from wattkeeper.scenarios.cli.main import main
invoke = main.invoke

def exits_late(*arguments):
    atexit.register(os.kill, os.getpid(), number)
    return invoke(*arguments)

main.invoke = exits_late
from wattkeeper.scenarios.__main__ import start
start()
"""


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[pytest.mark.slow] * (number != signal.SIGTERM))
        for number in INTERRUPTIONS
    ],
)
@pytest.mark.parametrize(("script", "code"), [(AT_THE_END, 0), (IN_SHUTDOWN, 130)])
def test_an_interruption_while_python_ends_is_one_of_the_exit_codes(
    number: signal.Signals, script: str, code: int, tmp_path: Path
) -> None:
    """What the signal would do without the command is to end the process, with minus its number."""
    process = start(number.value, "scenarios", folder=tmp_path, script=script)
    shown, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (code, "")
    assert "quickstart" in shown


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """As with nohup."""
    script = "from wattkeeper.scenarios.__main__ import start; start()"
    places = {"PYTHONPATH": str(AT_PLACE), "AT_PLACE": f"5:{signal.SIGHUP.value}"}
    done = subprocess.run(
        [sys.executable, "-c", script, "scenarios"],
        env=environment(tmp_path, **places),
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_IGN),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0

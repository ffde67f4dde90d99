"""What live runs, sessions and recordings write is for their user alone, whatever the umask is."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.live_runs import REHEARSED, command, environment, scenario
from tests.support.messages import assert_states
from tests.support.strangers import NOBODY, as_root, give_away, modes
from wattkeeper.live.devices import limit_journal
from wattkeeper.policies.errors import StoreError

SESSION = """
from wattkeeper.live import Session
from tests.support.sessions import TERMS

class Nothing:
    def state_dict(self): return {}
    def load_state_dict(self, state): pass

import os, signal
with Session("mine", **TERMS, eta=0) as session:
    session.keep(nothing=Nothing())
    for epoch in session.epochs(range(12)):
        for batch in epoch:
            if batch == 3:
                os.kill(os.getpid(), signal.SIGTERM)
        session.report(0.1)
"""
UNFIT = "from wattkeeper.live import Session; raise SystemExit(7)"


def run_openly(*arguments: str | Path, folder: Path, code: int, **more: str) -> str:
    """Run a command under umask 0; what it writes to its standard error."""
    done = subprocess.run(
        arguments,
        cwd=folder,
        env=environment(folder, **more),
        umask=0,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def open_to_others(folder: Path) -> list[str]:
    """The entries of a folder, and itself, that others than their owner may use in any way."""
    paths = [folder, *folder.rglob("*")]
    assert len(paths) > 1, f"{folder} is empty"
    return [str(path) for path in paths if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def test_the_folder_of_a_live_run_is_private(tmp_path: Path) -> None:
    path = scenario(tmp_path, REHEARSED, recurrences=2)
    made_before = tmp_path / "live.live"
    made_before.mkdir(mode=0o755)
    run_openly(*command("run", path, "--live", "--out", "live"), folder=tmp_path, code=0)
    (log,) = made_before.rglob("log.sqlite")
    with closing(sqlite3.connect(log)) as db:
        names = {name for (name,) in db.execute("SELECT name FROM about")}
    assert {"token", "port"} <= names
    assert list(made_before.rglob("output/*"))
    assert list(made_before.rglob("devices/*"))
    assert open_to_others(made_before) == []
    assert list((tmp_path / "state").rglob("*.lock"))
    assert open_to_others(tmp_path / "state") == []
    assert stat.S_IMODE((tmp_path / "live").stat().st_mode) & 0o044, "results are for others, too"


def test_the_store_of_sessions_and_their_states_are_private(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    run_openly(
        sys.executable,
        "-c",
        SESSION,
        folder=tmp_path,
        code=-15,
        WATTKEEPER_DEVICE="none",
        PYTHONPATH=str(root),
    )
    assert (tmp_path / "state" / "sessions.sqlite").is_file()
    assert list((tmp_path / "state").glob("sessions.sqlite.checkpoints/*"))
    assert open_to_others(tmp_path / "state") == []


def test_the_folder_of_a_recording_is_private(tmp_path: Path) -> None:
    script = tmp_path / "unfit.py"
    script.write_text(UNFIT)
    said = run_openly(*command("record", "--name", "unfit", script), folder=tmp_path, code=2)
    assert "ended with exit code 7" in said
    assert list((tmp_path / "library" / ".recording").rglob("*.log"))
    assert open_to_others(tmp_path / "library" / ".recording") == []


REFUSED = {
    "another user's": lambda folder: give_away(folder),
    "writable for others": lambda folder: folder.chmod(0o757),
    "writable for its group": lambda folder: folder.chmod(0o775),
    "with a file of another user": lambda folder: give_away(folder / "left"),
}


@as_root
@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("place", ["live.live", "state"])
def test_a_folder_that_others_may_have_filled_is_refused(
    tmp_path: Path, place: str, what: str
) -> None:
    path = scenario(tmp_path, REHEARSED, recurrences=1)
    folder = tmp_path / place
    folder.mkdir(mode=0o700)
    if what == "with a file of another user":
        if place == "state":
            pytest.skip("of the state, what is read is checked")
        (folder / "left").touch()
    REFUSED[what](folder)
    before = modes(folder)
    said = run_openly(*command("run", path, "--live", "--out", "live"), folder=tmp_path, code=2)
    assert_states(said, str(folder), "remove it")
    assert modes(folder) == before, "nothing is written there"
    assert not (tmp_path / "live").exists()


def test_a_folder_that_is_refused_keeps_its_mode(tmp_path: Path) -> None:
    path = scenario(tmp_path, REHEARSED, recurrences=1)
    (folder := tmp_path / "live.live").mkdir(mode=0o755)
    (folder / "mine").touch()
    before = modes(folder)
    said = run_openly(*command("run", path, "--live", "--out", "live"), folder=tmp_path, code=2)
    assert_states(said, str(folder), "no live runs of wattkeeper")
    assert modes(folder) == before


def test_no_folder_is_made_where_the_state_is_refused(tmp_path: Path) -> None:
    path = scenario(tmp_path, REHEARSED, recurrences=1)
    (folder := tmp_path / "state").mkdir()
    folder.chmod(0o777)
    said = run_openly(*command("run", path, "--live", "--out", "live"), folder=tmp_path, code=2)
    assert_states(said, str(folder), "(mode 0777)")
    assert not (tmp_path / "live.live").exists()


@pytest.mark.parametrize("empty", [True, False])
def test_a_link_to_a_live_folder_is_refused(tmp_path: Path, empty: bool) -> None:
    path = scenario(tmp_path, REHEARSED, recurrences=1)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    if not empty:
        (tmp_path / "elsewhere" / "mine").touch()
    (tmp_path / "live.live").symlink_to("elsewhere")
    said = run_openly(*command("run", path, "--live", "--out", "live"), folder=tmp_path, code=2)
    assert_states(said, "live.live", "is a link", "(--out)")
    assert len(list((tmp_path / "elsewhere").iterdir())) == (not empty)


@as_root
def test_a_limit_that_another_user_recorded_is_not_restored(tmp_path: Path) -> None:
    """It would be set by root, on any device."""
    path = scenario(tmp_path, REHEARSED, recurrences=1)
    (tmp_path / "state" / "limits").mkdir(parents=True)
    os.chown(tmp_path / "state", NOBODY, NOBODY)
    said = run_openly(*command("run", path, "--live", "--out", "live"), folder=tmp_path, code=2)
    assert_states(said, str(tmp_path / "state"), f"user {NOBODY}", "(WATTKEEPER_STATE)")


@as_root
def test_a_record_of_another_user_in_the_state_is_not_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTKEEPER_STATE", str(tmp_path / "state"))
    limit_journal.save(limit_journal.LimitEntry("synthetic:/dev/x", 100.0, 1, 0))
    (record,) = (tmp_path / "state").rglob("*.json")
    give_away(record)
    with pytest.raises(StoreError, match=f"user {NOBODY}"):
        limit_journal.recover()
    assert record.exists()

"""Files and folders are replaced whole, wherever the user may write."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import signals
from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.traces.files.atomic import (
    is_leftover,
    replace_file,
    replace_folder,
    scratch_folder,
    settle,
)

KILL_INSIDE = """
import os, signal, sys
from pathlib import Path
from wattkeeper.traces.files.atomic import replace_file
with replace_file(Path(sys.argv[1])) as fresh:
    fresh.write_text("new")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_that_cannot_be_synced_is_written_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some network file systems sync files alone."""

    def sync_files_alone(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", sync_files_alone)
    with replace_file(tmp_path / "file") as fresh:
        fresh.write_text("new")
    with replace_folder(tmp_path / "folder") as fresh:
        (fresh / "file").write_text("new")
    assert (tmp_path / "file").read_text() == (tmp_path / "folder/file").read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


def test_a_file_that_cannot_be_synced_does_not_replace_the_old_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    refused = pytest.raises(EnvironmentLacks, match=r"file: Input/output error")
    with refused, replace_file(path) as fresh:
        fresh.write_text("new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("first", [False, True], ids=["again", "first"])
@pytest.mark.parametrize(
    ("what", "exchange"),
    [("file", True), ("cached", True), ("folder", True), ("folder", False)],
    ids=["file", "cached", "folder", "folder-in-two-steps"],
)
def test_a_signal_at_any_call_leaves_one_version_whole(
    what: str, exchange: bool, first: bool, tmp_path: Path, signals_library: Path
) -> None:
    versions = {
        version: {".": version} if what != "folder" else {"one": version, "part/two": version}
        for version in ("old", "new", "next")
    }
    before = None if first else versions["old"]
    outcomes = signals.start(
        signals_library,
        "tests.support.atomic_signals",
        folder=str(tmp_path),
        what=what,
        first=first,
        exchange=exchange,
    )
    codes = {each["code"] for each in outcomes}
    assert codes == {0, 130, -signal.SIGKILL, -signal.SIGTERM}
    hidden = 0
    for each in outcomes:
        assert each["settled"] in (before, versions["new"]), each
        assert each["there"] == each["settled"] or (not exchange and each["code"] < 0), each
        assert each["code"] != 0 or each["there"] == versions["new"], each
        assert each["code"] < 0 or not each["beside"] or each["signal"] == "SIGINT", each
        assert all(map(is_leftover, each["beside"])), each
        assert each["next"] == versions["next"], each
        assert each["beside_settled"] == each["beside_next"] == [], each
        hidden += each["there"] != each["settled"]
    assert (hidden > 0) == (not exchange and not first), "killed between the two steps"


def test_replacements_in_progress_are_not_settled(tmp_path: Path) -> None:
    with replace_folder(tmp_path / "folder") as first:
        (first / "file").write_text("first")
        with replace_folder(tmp_path / "folder") as second:
            (second / "file").write_text("second")
        settle(tmp_path)
        assert first.exists()
    assert (tmp_path / "folder/file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_all_is_on_the_disk_before_it_takes_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The files, their folders, and at last the folders that have new names in them."""
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(f"{path.relative_to(tmp_path)}{' ' * (tmp_path / 'a/b/place').exists()}")

    monkeypatch.setattr(os, "fsync", sync)
    with replace_folder(tmp_path / "a/b/place") as fresh:
        (fresh / "part").mkdir()
        (fresh / "part/file").write_text("new")
    name = fresh.relative_to(tmp_path)
    assert synced[:2] == ["a", "."], "the parents were made"
    assert sorted(synced[2:5]) == [f"{name}", f"{name}/part", f"{name}/part/file"]
    assert synced[5:] == ["a/b "], "after it took its place"


def test_a_kill_leaves_the_old_file_and_a_leftover(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    subprocess.run((sys.executable, "-c", KILL_INSIDE, path), check=False)
    assert path.read_text() == "old"
    leftovers = {each.name for each in tmp_path.iterdir()} - {"file"}
    assert {name.rpartition(".")[2] for name in leftovers} == {"lock", "new"}
    assert all(map(is_leftover, leftovers))
    assert not is_leftover("file")
    with replace_file(tmp_path / "other") as fresh:
        fresh.write_text("new")
    assert {each.name for each in tmp_path.iterdir()} == {"file", "other", *leftovers}
    with replace_file(path) as fresh:
        fresh.write_text("new")
    assert {each.name for each in tmp_path.iterdir()} == {"file", "other"}


def test_a_failure_leaves_the_old_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("old")
    with pytest.raises(EnvironmentLacks, match=r"folder: No space left"), replace_folder(folder):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (folder / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [folder]


def test_a_scratch_folder_is_gone_afterwards_and_what_a_kill_leaves_with_the_next_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "missing" / "results"
    killed = KILL_INSIDE.replace("replace_file", "scratch_folder").replace(
        'fresh.write_text("new")', '(fresh / "part").write_text("new")'
    )
    process = subprocess.run([sys.executable, "-c", killed, path], check=False)
    assert process.returncode == -signal.SIGKILL
    left = {each.name.rpartition(".")[2] for each in tmp_path.iterdir()}
    assert left == {"lock", "new"}
    with scratch_folder(path) as scratch:
        (scratch / "part").write_text("new")
        assert scratch.parent == tmp_path
        assert {each.name for each in tmp_path.iterdir()} > {scratch.name}
        assert len([*tmp_path.iterdir()]) == 2
    assert not [*tmp_path.iterdir()]

"""Files and folders are replaced whole, wherever the user may write."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.traces.files.atomic import is_leftover, replace_file, replace_folder

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


def test_a_kill_leaves_the_old_file_and_a_leftover(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    subprocess.run((sys.executable, "-c", KILL_INSIDE, path), check=False)
    assert path.read_text() == "old"
    (leftover,) = {each.name for each in tmp_path.iterdir()} - {"file"}
    assert is_leftover(leftover)
    assert not is_leftover("file")


def test_a_failure_leaves_the_old_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("old")
    with pytest.raises(EnvironmentLacks, match=r"folder: No space left"), replace_folder(folder):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (folder / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [folder]

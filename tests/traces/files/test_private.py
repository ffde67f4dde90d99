"""What is gone on with belongs to this user, and others may not write it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.messages import assert_states
from tests.support.strangers import NOBODY, as_root, give_away, modes
from wattkeeper.policies.errors import StoreError
from wattkeeper.traces.files import atomic, private, user_dirs
from wattkeeper.traces.files.locks import lock


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of this user, with a file in a folder."""
    (tmp_path / "own" / "below").mkdir(parents=True)
    (tmp_path / "own" / "below" / "file").write_text("mine")
    return tmp_path / "own"


def test_an_own_folder_is_opened(own: Path) -> None:
    descriptor = private.open_own_folder(own)
    assert private.list_names(descriptor) == ["below"]
    os.close(descriptor)
    private.check_own_tree(own)


def make_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def make_file(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.write_text("no folder")


def make_pipe(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    os.mkfifo(path)


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link": (make_link, "is a link"),
    "a file": (make_file, "is no folder"),
    "a pipe": (make_pipe, "is no folder"),
    "for its group": (lambda path: path.chmod(0o775), "(mode 0775)"),
    "for all": (lambda path: path.chmod(0o757), "(mode 0757)"),
    "as /tmp": (lambda path: path.chmod(0o1777), "(mode 1777)"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_folder_that_others_may_fill_is_refused(own: Path, what: str) -> None:
    make, why = WRONG[what]
    make(own)
    for check in (private.open_own_folder, private.check_own_tree):
        with pytest.raises(StoreError) as caught:
            check(own, "--out")
        assert_states(str(caught.value), str(own), why, "name another folder (--out)")


@as_root
def test_a_folder_of_another_user_is_refused(own: Path) -> None:
    os.chown(own, NOBODY, NOBODY)
    with pytest.raises(StoreError) as caught:
        private.make_private_folder(own)
    assert_states(
        str(caught.value), str(own), "belongs to", f"user {NOBODY}", "not to you (user 0)"
    )


@as_root
def test_anything_of_another_user_in_a_folder_is_found(own: Path) -> None:
    give_away(own / "below" / "file")
    private.check_own_folder(own)
    with pytest.raises(StoreError) as caught:
        private.check_own_tree(own)
    assert_states(str(caught.value), str(own / "below" / "file"), f"user {NOBODY}")


@pytest.mark.parametrize("mode", ["rb", "ab", "wb"])
def test_a_link_a_pipe_or_another_name_is_no_file(own: Path, mode: str) -> None:
    """A pipe is not waited for; what is behind a link, or has another name, stays as it is."""
    target = own / "below" / "file"
    (own / "link").symlink_to(target)
    (own / "name").hardlink_to(target)
    os.mkfifo(own / "pipe")
    for name in ("link", "name", "pipe"):
        with (
            pytest.raises(StoreError, match=name),
            open(own / name, mode, opener=private.open_private),
        ):
            pass
    assert target.read_text() == "mine"


@as_root
def test_a_file_of_another_user_is_neither_read_nor_written(own: Path) -> None:
    path = own / "below" / "file"
    give_away(path)
    for work in (private.read_own_file, private.make_private_file):
        with pytest.raises(StoreError, match=f"user {NOBODY}"):
            work(path)
    assert path.read_text() == "mine"


@as_root
def test_what_another_user_left_beside_results_is_not_put_there(tmp_path: Path) -> None:
    """It looks as a replacement that was killed between its two steps."""
    for state in ("new", "old"):
        (tmp_path / f".out.0123456789ab.{state}").mkdir()
        give_away(tmp_path / f".out.0123456789ab.{state}")
    atomic.settle(tmp_path, "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_private_files_and_locks_are_for_their_owner_whatever_the_umask_is(
    tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        folder = tmp_path / "one" / "two"
        private.make_private_folder(folder)
        lock(folder / "lock")()
        with atomic.replace_file(folder / "kept", private=True) as fresh:
            fresh.write_text("mine")
        private.make_private_file(folder / "made")
    finally:
        os.umask(before)
    files = dict.fromkeys(["two/lock", "two/kept", "two/made"], "0600")
    assert modes(tmp_path / "one") == {".": "0700", "two": "0700", **files}


def test_a_link_where_a_file_is_to_be_made_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may see the lock beside it, and know the name that comes next."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(atomic, "_make_token", lambda: "0123456789ab")
    (tmp_path / ".page.0123456789ab.new").symlink_to(victim)
    replace = atomic.replace_file(tmp_path / "page", durable=False)
    with pytest.raises(Exception, match="cannot write"), replace as fresh:
        fresh.write_text("page")
    assert victim.read_text() == "mine"


def test_the_state_folder_is_checked(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(user_dirs.STATE, str(own))
    assert user_dirs.state_folder() == own
    own.chmod(0o777)
    with pytest.raises(StoreError) as caught:
        user_dirs.state_folder()
    assert_states(str(caught.value), str(own), "(mode 0777)", f"({user_dirs.STATE})", "chmod go-w")

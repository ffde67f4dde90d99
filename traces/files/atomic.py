"""Files and folders that appear whole or not at all, and survive a power failure once they do.

What is to replace NAME is written beside it, under names that begin with `.NAME.TOKEN`::

    .NAME.TOKEN.lock   held by the process that writes
    .NAME.TOKEN.new    what is being written, or is superseded
    .NAME.TOKEN.old    what was there, while the new one takes its place in two steps

The two steps are for file systems that cannot exchange two names in one. A killed process leaves
these files; they are settled by whatever replaces NAME next, and by `settle`.
"""

import ctypes
import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.policies.errors import EnvironmentLacks, InputError, StoreError
from wattkeeper.traces.files.locks import lock

LEFTOVER: Final = re.compile(r"\.(.+)\.([0-9a-f]{12})\.(lock|new|old)")
AT_FDCWD: Final = -100
RENAME_EXCHANGE: Final = 2
CANNOT_EXCHANGE: Final = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}
LACKS_LOCKS: Final = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}


@contextmanager
def replace_folder(folder: Path, *, durable: bool = True) -> Iterator[Path]:
    """Inside, a fresh folder to be filled; it takes the place of `folder` at the end.

    If anything fails, what was there before stays. An interruption or a kill leaves that or the
    fresh one, or `settle` puts it there. One that is not `durable`: see `replace_file`.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    with _beside(folder, make_parents=True, shared=durable) as names:
        names.new.mkdir()
        yield names.new
        if durable:
            for path in (*names.new.rglob("*"), names.new):
                sync(path)
        _put(names, folder)
        if durable:
            sync(folder.parent)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Inside, an empty folder near `path`, under a name of what replaces it; then it is gone.

    What a kill leaves is removed by whatever replaces `path` next.

    Raises:
        EnvironmentLacks: If the file system refuses the folder.
    """
    parent = next(folder for folder in path.parents if folder.exists())
    inside: OSError | None = None
    with _beside(parent / path.name) as names:
        names.new.mkdir(mode=0o700)
        try:
            yield names.new
        except OSError as error:  # of what is done inside, not of the folder
            inside = error
        finally:
            shutil.rmtree(names.new, ignore_errors=True)
    if inside is not None:
        raise inside


@contextmanager
def replace_file(
    path: Path, *, durable: bool = True, private: bool = False, make_parents: bool = False
) -> Iterator[Path]:
    """Inside, the name of a fresh file to be written; it takes the place of `path` at the end.

    If anything fails, what was there before stays; an interruption or a kill leaves that or the
    fresh one. Only writing belongs inside: any OSError there is reported as one of writing.
    Only its owner may read or write one that is `private`. Folders above it are made with
    `make_parents`.

    One that is not `durable`, such as one of many in a cache, costs neither a sync nor a lock nor a
    listing of its folder. A power failure may cut it short, and what a kill leaves stays until the
    process that owns the folder calls `settle`; no other one may.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    with _beside(path, make_parents=make_parents, shared=durable) as names:
        _make_file(names.new, 0o600 if private else 0o666)
        yield names.new
        if durable:
            move_file(names.new, path)
        else:
            names.new.replace(path)


def check_place(path: Path) -> None:
    """Check that a file or folder could be replaced, or made where nothing is.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    parent = next(folder for folder in path.parents if folder.exists())
    with _beside(parent / path.name):
        pass


def resolve(path: Path) -> Path:
    """The absolute path, without symbolic links.

    Raises:
        InputError: If the links form a loop.
    """
    whole = Path(os.path.realpath(path))
    if any(folder.is_symlink() for folder in (whole, *whole.parents)):
        raise InputError("is a loop of symbolic links", path)
    return whole


def move_file(source: Path, path: Path) -> None:
    """Give a complete file its final name, durably; both names are on one file system."""
    sync(source)
    source.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk.

    Folders are not synced where the file system, or a missing right to read them, forbids it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EINVAL, errno.ENOTSUP) or not path.is_dir():
            raise


def is_leftover(name: str) -> bool:
    """Whether a file or folder of this name was left by a kill while another was replaced."""
    return LEFTOVER.fullmatch(name) is not None


def settle(folder: Path, name: str | None = None) -> None:
    """Finish replacements in a folder that were killed half-way, and remove what others left.

    Replacements in progress are left alone, what may not be changed, and what belongs to another
    user: it could be anything.

    Args:
        folder: The folder; it need not be there.
        name: What was to be replaced; None: anything in the folder.
    """
    try:
        with os.scandir(folder) as entries:
            hidden = [entry.name for entry in entries if entry.name[0] == "." and _is_own(entry)]
    except OSError:
        return
    matches = map(LEFTOVER.fullmatch, hidden)
    killed = {match.group(1, 2) for match in matches if match and name in (None, match[1])}
    for base, token in sorted(killed):
        names = _names(folder / base, token)
        with suppress(OSError, StoreError):
            release = lock(names.lock)
            try:
                _finish(names, folder / base)
            finally:
                release()


def _is_own(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _make_file(path: Path, mode: int) -> None:
    """Make an empty file where nothing is: no link that somebody put there is followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    os.close(os.open(path, flags, mode))


def _make_folder(folder: Path, durable: bool) -> None:
    """Make a folder with its parents, unless it is there."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if durable:
        for path in missing:
            sync(path.parent)


class _Names(NamedTuple):
    lock: Path
    new: Path
    old: Path


def _make_token() -> str:
    return uuid.uuid4().hex[:12]


def _names(path: Path, token: str) -> _Names:
    return _Names(*(path.with_name(f".{path.name}.{token}.{state}") for state in _Names._fields))


@contextmanager
def _beside(path: Path, *, make_parents: bool = False, shared: bool = True) -> Iterator[_Names]:
    """Inside, names beside a path that no other process settles; then they are settled.

    In a folder that is not `shared` no other process settles anything.
    """
    try:
        if not path.name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if make_parents:
            _make_folder(path.parent, durable=shared)
        path.parent.stat()  # a lock would make it
        if shared:
            settle(path.parent, path.name)
            names, release = _claim(path)
        else:
            names, release = _names(path, _make_token()), lambda: None
        try:
            yield names
        finally:
            with suppress(OSError):
                _finish(names, path)
            release()
    except OSError as error:
        raise EnvironmentLacks(f"cannot write {path}: {error.strerror or error}") from error


def _claim(path: Path, tries: int = 3) -> tuple[_Names, Callable[[], object]]:
    """Lock names beside a path; the names, and the release of the lock."""
    names = _names(path, _make_token())
    try:
        return names, lock(names.lock)
    except BlockingIOError:  # another process settled it between its making and its locking
        if tries == 1:
            raise
        return _claim(path, tries - 1)
    except OSError as error:
        if error.errno not in LACKS_LOCKS:
            raise
        return names, names.lock.exists  # nothing to release: no other process settles there


def _put(names: _Names, folder: Path) -> None:
    """Give the new folder its place, in one step where the file system can."""
    try:
        names.new.rename(folder)  # nothing is there, or an empty folder
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    if _exchange(names.new, folder):
        return
    folder.rename(names.old)
    try:
        names.new.rename(folder)
    except OSError:
        names.old.rename(folder)
        raise


def _exchange(path: Path, other: Path) -> bool:
    """Exchange two names in one step; False if system or file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = (AT_FDCWD, os.fsencode(path), AT_FDCWD, os.fsencode(other))
    if rename(*paths, RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in CANNOT_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(other))


def _finish(names: _Names, path: Path) -> None:
    """Put a version in its place, and remove what is beside it; the caller holds the lock."""
    if names.old.exists() and not path.exists():  # between the two steps: the new one is whole
        (names.new if names.new.exists() else names.old).rename(path)
    superseded = [names.new]
    if names.old.exists():  # from now on, never put back: a kill may leave a part of it
        superseded.append(_names(path, _make_token()).new)
        names.old.rename(superseded[-1])
    for each in superseded:
        if each.is_dir():
            sync(path.parent)  # what supersedes it stays, even if power fails
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)
    names.lock.unlink(missing_ok=True)

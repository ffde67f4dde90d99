"""Files and folders that only their owner may change, whatever the umask is.

What is continued is opened without following links, and what was opened is checked, not its
path: who may write a folder may exchange what a path leads to.
"""

import errno
import os
import pwd
import stat
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import StoreError

MOST_LINKS: Final = 40
"""Links that are followed one after the other, as kernels do."""
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
NO_FOLDER: Final = {errno.ELOOP, errno.ENOTDIR}
NOT_A_FILE: Final = "is a link or a pipe, not a file: remove it"
NO_FILE: Final = {errno.ELOOP, errno.ENXIO}
"""Errors of links, and of pipes without a reader."""


def open_own_folder(folder: Path, option: str = "") -> int:
    """A descriptor of a folder that belongs to this user, and that nobody else may write.

    `option`: how another folder is named, for messages.

    Raises:
        StoreError: If it is another one, or no folder but a link or a file.
        OSError: If it is missing, or the file system refuses.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(folder, flags)
    except OSError as error:
        if error.errno not in NO_FOLDER:
            raise
        what = "a link" if folder.is_symlink() else "no folder"
        raise StoreError(f"is {what}: remove it, or {_name_another(option)}", folder) from None
    try:
        _check_owner(os.fstat(descriptor), folder, _name_another(option))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def list_names(descriptor: int) -> list[str]:
    """The names in a folder that was opened."""
    with os.scandir(descriptor) as entries:
        return [entry.name for entry in entries]


def check_own_folder(folder: Path, option: str = "") -> None:
    """Check a folder as `open_own_folder` does."""
    os.close(open_own_folder(folder, option))


def follow_own_link(path: Path) -> Path:
    """The absolute path, without links; those at its end belong to this user, or to root.

    Raises:
        StoreError: If one belongs to somebody else.
    """
    path = path.parent.resolve() / path.name
    for _ in range(MOST_LINKS):
        if not path.is_symlink():
            return path
        owner = path.lstat().st_uid
        if owner not in (0, os.geteuid()):
            raise _foreign(owner, path, _name_another(""))
        target = path.parent / path.readlink()
        path = target.parent.resolve() / target.name
    raise StoreError("is a loop of symbolic links", path)


def check_own_tree(folder: Path, option: str = "") -> None:
    """Check a folder as `open_own_folder` does, and that all in it belongs to this user.

    Raises:
        StoreError: If anything does not.
        OSError: If the file system refuses.
    """
    descriptor = open_own_folder(folder, option)
    try:
        for path, folders, files, within in os.fwalk(".", dir_fd=descriptor):
            for name in (*folders, *files):
                try:
                    owner = os.stat(name, dir_fd=within, follow_symlinks=False).st_uid
                except FileNotFoundError:  # of a training that continues
                    continue
                if owner != os.geteuid():
                    raise _foreign(owner, folder / path / name, _name_another(option))
    finally:
        os.close(descriptor)


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing; one that is there keeps its mode.

    Raises:
        StoreError: If it belongs to somebody else, or others may write it.
        OSError: If the file system refuses.
    """
    make_private_parents(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    check_own_folder(folder)


def make_private_parents(path: Path) -> None:
    """Make the folders above a path that are missing.

    Raises:
        OSError: If the file system refuses.
    """
    if path.parent != path and not path.parent.exists():
        make_private_parents(path.parent)
        path.parent.mkdir(mode=0o700, exist_ok=True)


def open_private(path: str | Path, flags: int) -> int:
    """An `opener` for `open`, whose file is private if it is made; its descriptor.

    Raises:
        StoreError: If it is no file of this user alone, but a link or a pipe, or has another name.
        OSError: If the file system refuses.
    """
    more = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe may have no other end
    try:
        descriptor = os.open(path, flags & ~os.O_TRUNC | more, 0o600)
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        raise StoreError(NOT_A_FILE, path) from None
    try:
        state = os.fstat(descriptor)
        check_file(state, path)
        _check_owner(state, Path(path), "name another file")
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_private_file(path: Path) -> None:
    """Make an empty file; one that is there stays as it is.

    SQLite gives the files that it makes beside a database the permissions of the database.

    Raises:
        StoreError: See `open_private`.
        OSError: If the file system refuses.
    """
    os.close(open_private(path, os.O_RDWR | os.O_CREAT))


def check_own_entry(path: Path) -> None:
    """Check that a file, if it is there, belongs to this user, without opening it.

    To open and close a file of SQLite would release the locks that this process has on it.

    Raises:
        StoreError: If it is another one, or a link or a pipe.
        OSError: If the file system refuses.
    """
    try:
        state = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(state.st_mode):
        raise StoreError(NOT_A_FILE, path)
    _check_owner(state, path, "name another file")


def read_own_file(path: Path) -> bytes:
    """The content of a file of this user.

    Raises:
        StoreError: See `open_private`.
        OSError: If it is missing, or the file system refuses.
    """
    with open(path, "rb", opener=open_private) as file:
        return file.read()


def check_file(state: os.stat_result, path: str | Path) -> None:
    """Check that what a path names is a file, without another name.

    Raises:
        StoreError: If it is not.
    """
    if stat.S_ISLNK(state.st_mode) or stat.S_ISFIFO(state.st_mode):
        raise StoreError(NOT_A_FILE, path)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
        raise StoreError("is no file, or one with another name: remove it", path)


def _name_another(option: str) -> str:
    return f"name another folder ({option})" if option else "name another folder"


def _check_owner(state: os.stat_result, path: Path, else_do: str) -> None:
    if state.st_uid != os.geteuid():
        raise _foreign(state.st_uid, path, else_do)
    if state.st_mode & OTHERS_WRITE:
        mode = stat.S_IMODE(state.st_mode)
        raise StoreError(
            f"others may write it (mode {mode:04o}) and may have put anything there: remove it, "
            f"{else_do}, or, if all of it is yours, chmod go-w",
            path,
        )


def _foreign(owner: int, path: Path, else_do: str) -> StoreError:
    try:
        name = f"{pwd.getpwuid(owner).pw_name} (user {owner})"
    except KeyError:
        name = f"user {owner}"
    return StoreError(
        f"belongs to {name}, not to you (user {os.geteuid()}): remove it, or {else_do}", path
    )

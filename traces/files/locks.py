"""Lock files that the kernel releases when their process ends, however it ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wattkeeper.traces.files.private import check_file


def lock(path: Path, *, wait: bool = False) -> Callable[[], None]:
    """Lock a file, made for its owner alone if it is missing, for one holder in one process.

    `wait`: whether to wait until it is free.

    Returns:
        The function that releases it; any thread may call it.

    Raises:
        BlockingIOError: If there is another holder, and `wait` is not given.
        StoreError: If it is no file but a link or a pipe, or has another name.
        OSError: If the file system refuses.
    """
    from filelock import FileLock, Timeout

    with suppress(FileNotFoundError):
        check_file(path.lstat(), path)
    # No soft lock in its place where the file system has none: a killed process would leave it.
    file_lock = FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)
    try:
        file_lock.acquire(blocking=wait)
    except Timeout as error:
        raise BlockingIOError(str(error)) from None
    return file_lock.release


@contextmanager
def hold_lock(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Inside, a file is locked; see `lock`."""
    release = lock(path, wait=wait)
    try:
        yield
    finally:
        release()

"""The zoo's files: one a tensor, named by its content.

::

    ZOO/index.sqlite        models and their tensors; see `wattkeeper.live.zoo.index`
    ZOO/tensors/HASH.safetensors
    ZOO/incoming/TOKEN/     of an operation in flight: its lock, and files that are being written

A file appears under its name whole or not at all.
"""

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wattkeeper.live.zoo.tensors import RawTensor, parse_safetensors
from wattkeeper.policies.errors import StoreError
from wattkeeper.traces.files.atomic import sync
from wattkeeper.traces.files.locks import lock

SUFFIX: Final = ".safetensors"
LOCK: Final = "lock"
OWN: Final = 0o755
"""Mode of the folders of a zoo, less what the umask takes: others may read, its owner write."""


class BlobStore:
    """The folders of tensors and of operations in flight.

    `root` is the folder of the zoo.
    """

    def __init__(self, root: Path) -> None:
        self.tensors, self.incoming = root / "tensors", root / "incoming"

    def make(self) -> None:
        """Make the folders if they are not there."""
        for folder in (self.tensors, self.incoming):
            folder.mkdir(mode=OWN, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Where the tensor with that content is."""
        return self.tensors / f"{digest}{SUFFIX}"

    def read(self, digest: str) -> RawTensor:
        """Read a tensor, and check that it is what its name says.

        Raises:
            FileNotFoundError: If it is not there.
            StoreError: If the file is damaged.
        """
        path = self.path(digest)
        content = path.read_bytes()
        tensors = parse_safetensors(content, str(path))
        if [tensor.digest for tensor in tensors.values()] != [digest]:
            raise StoreError(
                "damaged: its content has not the hash in its name. Remove the models that "
                "have it (`Zoo.check` names them), and add them again",
                path,
            )
        return next(iter(tensors.values()))

    def write(self, tensor: RawTensor, token: str) -> None:
        """Save a tensor unless a file of its content and size is there."""
        path = self.path(tensor.digest)
        try:
            if path.stat().st_size == tensor.file_bytes:
                return
        except FileNotFoundError:
            pass
        temporary = self.incoming / token / path.name
        with temporary.open("wb") as file:
            file.write(tensor.header)
            file.write(tensor.data)
        sync(temporary)
        temporary.rename(path)  # `settle` syncs the folder once for all tensors of a model

    def settle(self) -> None:
        """Return when the names of all tensors are on the disk, too."""
        sync(self.tensors)

    def unlink(self, digest: str) -> int:
        """Remove a tensor; how many bytes that frees, 0 if it was not there."""
        path = self.path(digest)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        return size

    def digests(self) -> dict[str, int]:
        """Size in bytes of every tensor on the disk by its digest, sorted."""
        with os.scandir(self.tensors) as entries:
            sizes = {
                entry.name.removesuffix(SUFFIX): entry.stat().st_size
                for entry in entries
                if entry.name.endswith(SUFFIX)
            }
        return dict(sorted(sizes.items()))

    def begin(self) -> tuple[str, Callable[[], None]]:
        """Begin an operation: its token, and the release of the lock that it holds."""
        token = uuid.uuid4().hex
        folder = self.incoming / token
        folder.mkdir(mode=OWN)
        return token, lock(folder / LOCK)

    def end(self, token: str) -> None:
        """Remove what an operation left behind."""
        shutil.rmtree(self.incoming / token, ignore_errors=True)

    def tokens(self) -> list[str]:
        """The operations that left something behind or are in flight, sorted."""
        return sorted(entry.name for entry in self.incoming.iterdir())

    def is_dead(self, token: str) -> bool:
        """Whether the process of an operation is gone."""
        path = self.incoming / token / LOCK
        if not path.exists():
            return True
        try:
            release = lock(path)
        except BlockingIOError:
            return False
        release()
        return True

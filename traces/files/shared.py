"""Values in a file without a name, which a process and those that it starts map into their memory.

All share one copy. The file is gone with the last of these processes, and no other one can open it:
what is unpickled from it was pickled by one of them. A value begins with the length of an index,
which has the sizes of the parts after it: a pickle, and the buffers of arrays and tables, which are
not copied when the value is read.
"""

import mmap
import pickle
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from wattkeeper.policies.errors import EnvironmentLacks

_LENGTH: Final = 8
_ALIGNED: Final = 64
"""Bytes; parts begin at multiples, as vector instructions like them."""


class SharedValue(NamedTuple):
    """The place of a value: the descriptor of the file, and the bytes there."""

    descriptor: int
    begin: int
    size: int


class SharedFile:
    """A file for values, on the disk of a folder; a context manager.

    Raises:
        EnvironmentLacks: If the file system refuses.

    Attributes:
        descriptor: Of the file; processes that inherit it under this number can read the values.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._file = TemporaryFile(dir=folder)  # noqa: SIM115 (`__exit__` closes it)
        except OSError as error:
            raise self._refusal(error) from error
        self.descriptor = self._file.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, value: object) -> SharedValue:
        """Add a value.

        Raises:
            EnvironmentLacks: If the file system refuses.
        """
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
        index = pickle.dumps([part.nbytes for part in parts])
        file = self._file
        try:
            begin = file.seek(_align(file.tell(), mmap.ALLOCATIONGRANULARITY))
            file.write(len(index).to_bytes(_LENGTH, "little"))
            file.write(index)
            for part in parts:
                file.write(bytes(-file.tell() % _ALIGNED))
                file.write(part)
            file.flush()
        except OSError as error:
            raise self._refusal(error) from error
        return SharedValue(self.descriptor, begin, file.tell() - begin)

    def _refusal(self, error: OSError) -> EnvironmentLacks:
        return EnvironmentLacks(f"cannot write to {self._folder}: {error.strerror or error}")


def read_shared(place: SharedValue) -> Any:
    """The value at a place, whose arrays and tables cannot be changed and lie in the file."""
    descriptor, begin, size = place
    whole = memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, offset=begin))
    begin = _LENGTH + int.from_bytes(whole[:_LENGTH], "little")
    sizes: list[int] = pickle.loads(whole[_LENGTH:begin])
    ends = accumulate(sizes, lambda end, size: _align(end, _ALIGNED) + size, initial=begin)
    parts = [whole[end - size : end] for size, end in zip(sizes, list(ends)[1:], strict=True)]
    return pickle.loads(parts[0], buffers=parts[1:])


def _align(place: int, to: int) -> int:
    return place + -place % to

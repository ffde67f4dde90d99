"""Values in files that the processes of a host map into their memory: all share one copy.

The file begins with the length of an index, which has the sizes of the parts after it: a pickle,
and the buffers of arrays and tables, which are not copied when the value is read.
"""

import mmap
import pickle
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from wattkeeper.traces.files.atomic import replace_file

_LENGTH: Final = 8
_ALIGNED: Final = 64
"""Bytes; parts begin at multiples, as vector instructions like them."""


def write_shared(path: Path, value: object) -> None:
    """Write a value to a file, whole or not at all.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    index = pickle.dumps([part.nbytes for part in parts])
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path, durable=False) as fresh, fresh.open("wb") as file:
        file.write(len(index).to_bytes(_LENGTH, "little"))
        file.write(index)
        for part in parts:
            file.write(bytes(-file.tell() % _ALIGNED))
            file.write(part)


def read_shared(path: Path) -> Any:
    """The value in a file, whose arrays and tables cannot be changed and lie in the file.

    The file may be removed then, but not be changed.

    Raises:
        FileNotFoundError: If it is missing.
    """
    with path.open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    begin = _LENGTH + int.from_bytes(whole[:_LENGTH], "little")
    sizes: list[int] = pickle.loads(whole[_LENGTH:begin])
    ends = accumulate(sizes, lambda end, size: _align(end) + size, initial=begin)
    parts = [whole[end - size : end] for size, end in zip(sizes, list(ends)[1:], strict=True)]
    return pickle.loads(parts[0], buffers=parts[1:])


def _align(place: int) -> int:
    return place + -place % _ALIGNED

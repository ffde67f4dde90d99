"""Serialisation of a model's arrays, for a cache or a store."""

from hashlib import blake2b
from itertools import pairwise
from typing import TypeVar

import numpy as np

from wattkeeper.policies.arrays import Ints

A = TypeVar("A", bound=tuple[Ints, ...])

FORMAT = 3
"""Version: incremented when the same graph gives other arrays, or other bytes."""
CHECK_BYTES = 16


def pack(arrays: tuple[Ints, ...]) -> bytes:
    """Serialise arrays: a checksum, the version, their lengths, then the arrays."""
    lengths = [FORMAT, *(len(array) for array in arrays)]
    body = np.concatenate([lengths, *arrays]).astype("<i8").tobytes()
    return _check(body) + body


def unpack(layout: type[A], data: bytes) -> A | None:
    """The arrays that `pack` serialised; None if they are damaged or of another version."""
    check, body = data[:CHECK_BYTES], bytearray(data[CHECK_BYTES:])
    if check != _check(body):
        return None
    numbers = np.frombuffer(body, dtype="<i8")
    wanted = len(layout.__annotations__)
    if numbers[0] != FORMAT:
        return None
    ends = 1 + wanted + np.cumsum([0, *numbers[1 : 1 + wanted]])
    if ends[-1] != len(numbers):
        return None
    return layout(*(numbers[start:end] for start, end in pairwise(ends)))


def _check(body: bytes | bytearray) -> bytes:
    return blake2b(body, digest_size=CHECK_BYTES).digest()

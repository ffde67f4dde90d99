"""Recognises failures of training scripts: out of memory, and the same failure again and again."""

import re
from typing import Final

MAX_FAILURES: Final = 3
"""Failures in a row that are taken for a fault of the script: the first may come from a busy host,
the second from the same once more."""

MEMORY_ERRORS: Final = re.compile(r"MemoryError|out of memory|SIGKILL", re.IGNORECASE)
"""The kernel kills a process (SIGKILL) when the host has no memory left."""


def is_out_of_memory(message: str) -> bool:
    """Whether an exception, as `Type: text`, says that memory did not suffice."""
    return message.partition(":")[0] in {"MemoryError", "OutOfMemoryError"}


def suggests_out_of_memory(output: str) -> bool:
    """Whether the output of a process suggests that memory did not suffice."""
    return MEMORY_ERRORS.search(output) is not None

"""Names of nodes in lists, and GPUs of a job on its nodes."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final

MOST_HOSTS: Final = 100_000
PART: Final = re.compile(r"([^\[\],]*)(?:\[([^\[\]]*)\])?")
IPV4: Final = re.compile(r"\d+(\.\d+){3}")
NO_HOSTS: Final = ("", "None assigned", "None", "(null)")


def short_name(host: str) -> str:
    """The name of a host without port and domain: ``gpu01.cluster:9400`` -> ``gpu01``."""
    host = host.strip().partition(":")[0]
    return host if IPV4.fullmatch(host) else host.partition(".")[0]


def expand_hosts(text: str) -> tuple[str, ...]:
    """The names in a list of hosts as Slurm writes it: ``gpu[01-03,7],login``.

    Raises:
        ValueError: If it is no such list, or has more than `MOST_HOSTS` names.
    """
    if text in NO_HOSTS:
        return ()
    hosts: list[str] = []
    for word in _words(text):
        pieces = [piece for piece in PART.finditer(word) if piece.group()]
        if "".join(piece.group() for piece in pieces) != word:
            raise ValueError(f"{text[:40]!r} is no list of hosts")
        choices = [
            [piece[1] + number for number in ([""] if piece[2] is None else _numbers(piece[2]))]
            for piece in pieces
        ]
        for names in product(*choices):
            hosts.append("".join(names))
            if len(hosts) > MOST_HOSTS:
                raise ValueError(f"{text[:40]!r} has more than {MOST_HOSTS:,} hosts")
    return tuple(hosts)


def _words(text: str) -> Iterator[str]:
    """The parts between commas that are outside of brackets."""
    yield from filter(None, (word.strip() for word in re.split(r",(?![^\[]*\])", text)))


def _numbers(text: str) -> Iterator[str]:
    """The numbers of a range in brackets, as wide as written."""
    for span in text.split(","):
        first, dash, last = span.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{text[:40]!r} is no range of numbers")
        low, high = int(first), int(last or first)
        if high - low > MOST_HOSTS:
            raise ValueError(f"{text[:40]!r} has more than {MOST_HOSTS:,} numbers")
        yield from (f"{number:0{len(first)}d}" for number in range(low, high + 1))


def write_gpu_ids(by_node: Mapping[str, list[str]]) -> str:
    """GPUs by node as text: ``gpu01:0,1;gpu02:3``; see `read_gpu_ids`."""
    return ";".join(f"{node}:{','.join(gpus)}" for node, gpus in by_node.items())


def read_gpu_ids(text: str, nodes: tuple[str, ...]) -> dict[str, list[str]]:
    """GPUs of a job by node, from ``gpu01:0,1;gpu02:3``, or ``0,1`` for all of its nodes.

    Raises:
        ValueError: If it is no such text, or names a node that the job has not.
    """
    by_node: dict[str, list[str]] = {}
    for part in filter(None, text.split(";")):
        node, colon, gpus = part.rpartition(":")
        listed = [gpu.strip() for gpu in gpus.split(",") if gpu.strip()]
        named = [short_name(node)] if colon else [short_name(each) for each in nodes]
        if not listed or not {*named} <= {short_name(each) for each in nodes}:
            raise ValueError(f"{text[:40]!r} does not list GPUs of nodes of the job")
        by_node |= dict.fromkeys(named, listed)
    return by_node

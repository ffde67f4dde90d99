"""Values that the processes of a pipeline exchange, through the store of torch.distributed."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from wattkeeper.live.host import process_identity
from wattkeeper.live.host.plain_values import decode, encode
from wattkeeper.policies.errors import EnvironmentLacks

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.0005
LONGEST_PAUSE_S: Final = 0.05
LOOK_EVERY_S: Final = 0.5
"""How often a process that waits looks whether the others still run, s."""


class KeyValueStore(Protocol):
    """What is used of a store of torch.distributed."""

    def set(self, key: str, value: bytes) -> None:
        """Store a value."""

    def get(self, key: str) -> bytes:
        """The value of a key; it blocks until there is one."""

    def check(self, keys: list[str]) -> bool:
        """Whether all of these have a value."""

    def delete_key(self, key: str) -> bool:
        """Remove a key."""


class StageExchange:
    """One of the processes of a pipeline, which are numbered from 0.

    A process that waits for a value notices that another one failed (it says so), ended without a
    word (on the same host), or stays silent.

    Args:
        store: It connects the processes.
        name: Of this pipeline, among all that use the store.
        rank: Number of this process.
        size: Number of processes.
        patience_s: How long a value is waited for, s.

    Attributes:
        identity: Of this process, among those of all hosts.
    """

    def __init__(
        self, store: KeyValueStore, name: str, rank: int, size: int, patience_s: float
    ) -> None:
        self.rank, self.size = rank, size
        self._store, self._name, self._patience_s = store, name, patience_s
        self._round = 0
        self.identity = process_identity.identify()
        self.publish(f"who/{rank}", self.identity)

    @property
    def is_leader(self) -> bool:
        """Whether this process decides for all."""
        return self.rank == 0

    def publish(self, key: str, value: object) -> None:
        """Store a value for the others.

        Raises:
            EnvironmentLacks: If the process that holds the store is gone.
        """
        try:
            self._store.set(self._key(key), encode(value))
        except RuntimeError as error:
            raise _gone(error) from None

    def read(self, key: str, kind: type[T]) -> T:
        """Wait for a value of a type.

        Raises:
            EnvironmentLacks: If another process failed or ended, or no value came in time.
        """
        began_s = looked_s = time.monotonic()
        pause_s = FIRST_PAUSE_S
        try:
            while not self._store.check([self._key(key)]):
                now_s = time.monotonic()
                if now_s - began_s > self._patience_s:
                    raise EnvironmentLacks(
                        f"rank {self.rank} of the pipeline waited {self._patience_s:g} s for "
                        f"{key!r}: another rank hangs"
                    )
                if now_s - looked_s > LOOK_EVERY_S:
                    looked_s = now_s
                    self._check_others()
                time.sleep(pause_s)
                pause_s = min(1.2 * pause_s, LONGEST_PAUSE_S)
            value: T = decode(self._store.get(self._key(key)), kind)
            return value
        except RuntimeError as error:
            raise _gone(error) from None

    def delete(self, key: str) -> None:
        """Remove a value that nobody reads any more."""
        with suppress(RuntimeError):
            self._store.delete_key(self._key(key))

    def gather(self, value: T) -> list[T]:
        """Give the leader a value of each rank, in order; the others get an empty list."""
        self._round += 1
        key = f"round/{self._round}"
        if not self.is_leader:
            self.publish(f"{key}/{self.rank}", value)
            return []
        kind = type(value)
        values = [value, *(self.read(f"{key}/{rank}", kind) for rank in range(1, self.size))]
        for rank in range(1, self.size):
            self.delete(f"{key}/{rank}")
        self.delete(f"round/{self._round - 1}")  # all have read it
        return values

    def share(self, value: T | None, kind: type[T]) -> T:
        """Give all ranks the leader's value, of a type; once after each `gather`."""
        key = f"round/{self._round}"
        if value is not None and self.is_leader:
            self.publish(key, value)
            return value
        return self.read(key, kind)

    def gather_others(self, value: T) -> list[T]:
        """Give all ranks a value; return those of the others, in order."""
        self._round += 1
        self.publish(f"all/{self._round}/{self.rank}", value)
        others = [rank for rank in range(self.size) if rank != self.rank]
        values = [self.read(f"all/{self._round}/{rank}", type(value)) for rank in others]
        self.delete(f"all/{self._round - 1}/{self.rank}")  # all have read it
        return values

    def leave(self, why: str) -> None:
        """Tell the other ranks that this one failed."""
        with suppress(EnvironmentLacks):
            self.publish(f"left/{self.rank}", why)

    def check_left(self) -> None:
        """Raise if another rank said that it failed.

        Raises:
            EnvironmentLacks: It names the rank, and says why.
        """
        for rank in range(self.size):
            if rank != self.rank and self._store.check([self._key(f"left/{rank}")]):
                why = self.read(f"left/{rank}", str)
                raise EnvironmentLacks(f"rank {rank} of the pipeline {why}")

    def _check_others(self) -> None:
        self.check_left()
        for rank in range(self.size):
            key = self._key(f"who/{rank}")
            if rank == self.rank or not self._store.check([key]):
                continue
            if process_identity.is_dead(decode(self._store.get(key), str)):
                self.check_left()
                raise EnvironmentLacks(f"the process of rank {rank} of the pipeline ended")

    def _key(self, key: str) -> str:
        return f"wattkeeper/{self._name}/{key}"


def _gone(error: RuntimeError) -> EnvironmentLacks:
    first = str(error).partition("\n")[0]
    return EnvironmentLacks(
        f"the process that holds the store of torch.distributed is gone ({first})"
    )

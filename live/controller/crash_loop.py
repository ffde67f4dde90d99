"""Which workloads of a live run cannot work: their processes end before they did anything."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from wattkeeper.live.controller.process_output import last_said, said
from wattkeeper.live.controller.workloads import LiveAttempt
from wattkeeper.live.host.failures import MAX_FAILURES, suggests_out_of_memory
from wattkeeper.live.wire.messages import AttemptResult
from wattkeeper.policies.errors import InputError


class CrashLoopGuard:
    """Counts them, and ends a run that they would only prolong.

    Args:
        folder: Where the processes' output is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._quick_ends = Counter[str]()
        self._failures = Counter[str]()
        self._reported: set[str] = set()
        self._failed: dict[str, AttemptResult] = {}

    def began(self, workload: str) -> None:
        """A process made a session."""
        self._quick_ends.pop(workload, None)

    def reported(self, workload: str) -> None:
        """A session did an epoch."""
        self._reported.add(workload)
        self._failures.pop(workload, None)

    def ended_quickly(self, workload: str, run_id: str, code: int, *, refuse: bool) -> None:
        """A process ended with an exit code before it made a session.

        Args:
            workload: What it should have trained.
            run_id: The process.
            code: Its exit code.
            refuse: Whether to end the run; played again, it is over already.

        Raises:
            InputError: If it is the last of `MAX_FAILURES`.
        """
        self._quick_ends[workload] += 1
        if refuse and self._quick_ends[workload] >= MAX_FAILURES:
            raise InputError(
                f"workload {workload!r}: its command ended {MAX_FAILURES} times, the last time "
                f"with exit code {code}, before it made a Session. Once it is mended, the same "
                f"command goes on with this run; {said(self._folder, run_id)}"
            )

    def note(self, run_id: str, outcome: AttemptResult) -> None:
        """A process failed, or fell silent; all that it said is there once it is gone."""
        self._failed[run_id] = outcome

    def killed(self, run_id: str) -> None:
        """A process that failed did not end of that."""
        if run_id in self._failed and self._failed[run_id].cause == "failed":
            del self._failed[run_id]

    def gone(self, run: LiveAttempt | None, run_id: str, *, refuse: bool) -> None:
        """A process is gone. One that was out of memory may work with another batch size.

        Args:
            run: What it trained, if that is still known.
            run_id: The process.
            refuse: As of `ended_quickly`.

        Raises:
            InputError: If it is the last of `MAX_FAILURES` that failed, and none did an epoch.
        """
        outcome = self._failed.pop(run_id, None)
        if outcome is None or run is None or not refuse:
            return
        workload, words = str(run.attempt.job.workload), last_said(self._folder, run_id)
        if workload in self._reported or suggests_out_of_memory(f"{outcome.message}\n{words}"):
            return
        self._failures[workload] += 1
        if self._failures[workload] < MAX_FAILURES:
            return
        raise InputError(
            f"workload {workload!r}: its script failed {MAX_FAILURES} times, one after the other, "
            f"and never did an epoch; the last time with batch size "
            f"{run.decision.batch_size}: {outcome.message}. Once it is mended, the "
            f"same command goes on with this run. {words}"
        )

"""Ends a live run whose processes fail again and again before they complete an epoch."""

from collections import Counter
from pathlib import Path
from typing import Final

from wattkeeper.live.controller.attempt import LiveAttempt
from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.host.failures import MAX_FAILURES, suggests_out_of_memory
from wattkeeper.live.wire.messages import AttemptResult, Lost
from wattkeeper.policies.errors import InputError
from wattkeeper.traces.files.names import file_name

LINE_LENGTH: Final = 300
"""Longest part of a line of output that is shown, characters."""


class CrashLoopGuard:
    """Counts failures in a row by workload, and ends the run at the third.

    While the log of the run is replayed, it ends no run.

    Args:
        folder: Where the processes' output is kept.
        env: The environment of the run.
    """

    def __init__(self, folder: Path, env: LiveEnvironment) -> None:
        self._folder, self._env = folder, env
        self._quick_ends = Counter[str]()
        self._failures = Counter[str]()
        self._reported: set[str] = set()
        self._failed: dict[str | None, AttemptResult] = {}

    def note_session(self, run: LiveAttempt) -> None:
        """Note that the process of an attempt made a session."""
        self._quick_ends.pop(str(run.attempt.job.workload), None)

    def note_epoch(self, run: LiveAttempt) -> None:
        """Note that the session of an attempt completed an epoch."""
        workload = str(run.attempt.job.workload)
        self._reported.add(workload)
        self._failures.pop(workload, None)

    def note_loss(self, run: LiveAttempt, lost: Lost, outcome: AttemptResult) -> None:
        """Note that the process of an attempt crashed or was silent.

        Raises:
            InputError: If it ended before it made a session, and is the last of `MAX_FAILURES`.
        """
        begun, code = run.process.begun, lost.code
        if not begun and code is not None and code >= 0:  # else it was killed
            self._note_early_exit(str(run.attempt.job.workload), run.process.run_id, code)
        if lost.cause != "crashed" or (begun and code is not None and code > 0):
            self.note_failure(run, outcome)

    def _note_early_exit(self, workload: str, run_id: str | None, code: int) -> None:
        self._quick_ends[workload] += 1
        if self._env.is_replayed and self._quick_ends[workload] >= MAX_FAILURES:
            raise InputError(
                f"workload {workload!r}: its command ended {MAX_FAILURES} times, the last time "
                f"with exit code {code}, before it made a Session. Once it is mended, the same "
                f"command goes on with this run; {self._describe_output(str(run_id), 1)}"
            )

    def note_failure(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        """Note that a process failed or was silent; its output is complete once it has exited."""
        self._failed[run.process.run_id] = outcome

    def forget_failure(self, run_id: str) -> None:
        """Forget the failure of a process that was killed instead of exiting."""
        if run_id in self._failed and self._failed[run_id].cause == "failed":
            del self._failed[run_id]

    def note_exit(self, run: LiveAttempt | None, run_id: str) -> None:
        """Note that a process has exited. Running out of memory counts as no failure.

        `run` is its attempt, if that is still known.

        Raises:
            InputError: If it is the last of `MAX_FAILURES` that failed, and none did an epoch.
        """
        outcome = self._failed.pop(run_id, None)
        if outcome is None or run is None:
            return
        workload, output = str(run.attempt.job.workload), self._describe_output(run_id, 5)
        if workload in self._reported or suggests_out_of_memory(f"{outcome.message}\n{output}"):
            return
        self._failures[workload] += 1
        if self._failures[workload] < MAX_FAILURES:
            return
        raise InputError(
            f"workload {workload!r}: its script failed {MAX_FAILURES} times, one after the other, "
            f"and never did an epoch; the last time with batch size "
            f"{run.decision.batch_size}: {outcome.message}. Once it is mended, the "
            f"same command goes on with this run; {output}"
        )

    def _describe_output(self, run_id: str, count: int) -> str:
        """The files of a process's output, errors first, and the last lines of the first."""
        paths = sorted(self._folder.glob(f"{file_name(run_id)}.*"))
        paths = [path for path in paths if path.stat().st_size]
        if not paths:
            return "it wrote no output"
        text = paths[0].read_text(encoding="utf-8", errors="replace")
        lines = [line.rstrip()[:LINE_LENGTH] for line in text.split("\n") if line.strip()]
        end = "".join(f"\n  {line}" for line in lines[-count:])
        return f"its output is in {' and '.join(map(str, paths))}; it ends with:{end}"

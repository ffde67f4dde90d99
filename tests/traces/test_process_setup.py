"""How numpy and Arrow are set up in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

PROGRAM = """
import os, sys
from wattkeeper.traces.process_setup import configure_process
assert "numpy" not in sys.modules
configure_process()
import psutil
print(psutil.Process().num_threads(), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


def set_up(**variables: str) -> tuple[int, str]:
    """Threads of a process that is set up, and the variable that its child processes inherit."""
    kept = {name: text for name, text in os.environ.items() if not name.endswith("_NUM_THREADS")}
    threads, inherited = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=kept | variables,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return int(threads), inherited


def test_openblas_has_one_thread_and_child_processes_do_not_inherit_that() -> None:
    assert set_up() == (set_up(OPENBLAS_NUM_THREADS="1")[0], "None")


@pytest.mark.skipif(
    len(psutil.Process().cpu_affinity()) < 2, reason="OpenBLAS has a thread for each processor"
)
@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"])
def test_the_environment_may_ask_for_more_threads(name: str) -> None:
    assert set_up(**{name: "2"})[0] == set_up()[0] + 1

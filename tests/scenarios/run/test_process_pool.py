"""Worker processes whose parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = """\
import os, signal, sys, time
from contextlib import suppress

def kill_parent(place):
    # a second worker may come too late; multiprocessing's tracker is no worker
    if place != os.environ.get("PLACE") or "tracker" in sys.orig_argv[-1]:
        return
    parent = int(os.environ["PARENT"])
    with suppress(ProcessLookupError):
        os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        time.sleep(0.001)

if "PARENT" in os.environ:
    kill_parent("python starts")
"""

SCRIPT = """\
import os
from collections import deque
from functools import partial
from sitecustomize import kill_parent
from wattkeeper.scenarios.run.process_pool import run_tasks

LARGE = 1 << 22  # more than any pipe holds

class Data:
    def __init__(self):
        self.content = bytes(LARGE)

    def __setstate__(self, state):
        kill_parent("the function is read")

def work(data, task):
    kill_parent("a task is done")
    return bytes(LARGE)

if __name__ == "__main__":
    os.environ["PARENT"] = str(os.getpid())
    for _ in run_tasks(deque(range(10)), partial(work, Data()), 2):
        pass
else:
    kill_parent("modules are imported")
"""


def run_script(folder: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(KILLS)
    (folder / "script.py").write_text(script)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )


@pytest.mark.parametrize(
    "place", ["python starts", "modules are imported", "the function is read", "a task is done"]
)
def test_workers_whose_parent_is_killed_end_in_silence(place: str, tmp_path: Path) -> None:
    done = run_script(tmp_path, SCRIPT, PLACE=place)  # all have ended: nobody holds its outputs
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "", "")
    assert run_script(tmp_path, SCRIPT, PLACE="nowhere").returncode == 0


def test_a_script_that_starts_workers_on_import_gets_one_message(tmp_path: Path) -> None:
    script = SCRIPT.replace('if __name__ == "__main__":', "if True:").replace("else:", "if False:")
    done = run_script(tmp_path, script)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "under `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]

"""GPUs for the real pynvml: the state that tests/support/nvml.c reads, and its build.

What calls NVML runs in a process of its own, since libraries are looked for as a process started.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_suffix(".c")
STATE = "WATTKEEPER_TEST_NVML"
MOST = 8


class Gpu(ctypes.Structure):
    uuid: bytes
    name: bytes
    demand_w: float
    energy_j: float
    ramp_w_per_s: float
    lost_at_s: float
    limit_mw: int
    has_limits: int
    may_set: int
    counts_energy: int
    tells_power: int
    mig: int
    busy_percent: int
    sets: int
    others: int
    clocks: int
    may_lock: int
    lowest_lock_mhz: int
    highest_lock_mhz: int
    locks: int
    pids: ctypes.Array[ctypes.c_uint32]
    counter_s: float
    _fields_ = (
        *((name, ctypes.c_char * 80) for name in ("uuid", "name")),
        *(
            (name, ctypes.c_double)
            for name in ("demand_w", "ramp_w_per_s", "energy_j", "since_s", "lost_at_s")
        ),
        *((f"{name}_mw", ctypes.c_uint32) for name in ("limit", "lowest", "highest", "default")),
        *(
            (name, ctypes.c_uint32)
            for name in (
                "may_set",
                "counts_energy",
                "tells_power",
                "has_limits",
                "mig",
                "busy_percent",
                "sets",
                "others",
                "clocks",
                "may_lock",
                "lowest_lock_mhz",
                "highest_lock_mhz",
                "locks",
            )
        ),
        ("pids", ctypes.c_uint32 * 8),
        ("counter_s", ctypes.c_double),
        ("before_w", ctypes.c_double),
    )


class State(ctypes.Structure):
    clock_s: float
    gpus: int
    init_error: int
    gpu: ctypes.Array[Gpu]
    _fields_ = (
        ("clock_s", ctypes.c_double),
        ("gpus", ctypes.c_uint32),
        ("init_error", ctypes.c_uint32),
        ("gpu", Gpu * MOST),
    )


class Driver:
    """The state, mapped."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with file.open("r+b") as opened:
            self.state = State.from_buffer(mmap.mmap(opened.fileno(), ctypes.sizeof(State)))

    @classmethod
    def of_this_process(cls) -> Driver:
        return cls(Path(os.environ[STATE]))

    @classmethod
    def create(cls, file: Path, gpus: int) -> Driver:
        """GPUs of 100 to 400 W, at 400 W, that want 300 W and allow everything.

        Their clocks are 210 to 1410 MHz by 15 MHz.
        """
        file.write_bytes(bytes(ctypes.sizeof(State)))
        driver = cls(file)
        driver.state.gpus = gpus
        for at in range(gpus):
            driver.state.gpu[at] = Gpu(
                f"GPU-{at}aaaaaaa-0000-0000-0000-000000000000".encode(),
                b"NVIDIA A100-SXM4-40GB",
                300,
                0,
                0,
                0,
                0,
                400_000,
                100_000,
                400_000,
                400_000,
                1,
                1,
                1,
                1,
                0,
                0,
                0,
                0,
                81,
                1,
            )
        return driver

    @property
    def gpu(self) -> Gpu:
        return self.state.gpu[0]

    def now_s(self) -> float:
        """So that it is a `Wall` too."""
        return self.state.clock_s

    def advance(self, seconds: float) -> None:
        self.state.clock_s += seconds

    def environment(self, library: Path, state: Path) -> dict[str, str]:
        """For a process that finds this driver, and keeps its state in a folder of the test."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CUDA_", "WATTKEEPER_"))
        }
        own = {"LD_LIBRARY_PATH": _found_first(library), STATE: str(self.file)}
        return {**kept, **own, "WATTKEEPER_STATE": str(state)}


def build(folder: Path) -> Path:
    """Compile the library; the folder to find it in."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.fail("the tests of NVML need a C compiler; on Debian or Ubuntu: apt install gcc")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-lm"]
    subprocess.run(command, check=True)
    return folder


class Host:
    """A process that has the library, and forks one for each test that runs on it."""

    def __init__(self, library: Path) -> None:
        self.library = library
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.support.nvml import serve; serve()"],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "LD_LIBRARY_PATH": _found_first(library)},
        )

    def run(self, module: str, test: str, environment: dict[str, str]) -> tuple[int, str]:
        """Run a test; its exit code, and what it wrote."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([module, test, environment]), file=self._process.stdin, flush=True)
        code, output = json.loads(self._process.stdout.readline())
        return code, output

    def close(self) -> None:
        self._process.communicate()


def _found_first(library: Path) -> str:
    others = os.environ.get("LD_LIBRARY_PATH", "")
    return f"{library}:{others}" if others else str(library)


def serve() -> None:
    import pynvml  # noqa: F401  # so that a fork has it

    for line in sys.stdin:
        module, test, environment = json.loads(line)
        importlib.import_module(module)
        with tempfile.TemporaryFile() as output:
            pid = os.fork()
            if pid == 0:
                for at in (1, 2):
                    os.dup2(output.fileno(), at)
                _run(module, test, environment)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            output.seek(0)
            print(json.dumps([code, output.read().decode()]), flush=True)


def _run(module: str, test: str, environment: dict[str, str]) -> None:
    code = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        getattr(sys.modules[module], test).in_process()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def on_gpus(gpus: int = 1) -> Callable[[Callable[[Driver], None]], Callable[..., None]]:
    """Make a test of what a process with that driver does: it is run in such a process."""

    def decorate(test: Callable[[Driver], None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(nvml_host: Host, tmp_path: Path) -> None:
            driver = Driver.create(tmp_path / "nvml", gpus)
            environment = driver.environment(nvml_host.library, tmp_path / "state")
            code, output = nvml_host.run(test.__module__, test.__name__, environment)
            assert code == 0, output

        del run.__wrapped__  # pytest reads the parameters there
        run.in_process = lambda: test(Driver.of_this_process())  # type: ignore[attr-defined]
        return run

    return decorate

"""What tests share: the command, and the folder with real traces and published outputs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, settings

from tests.support.warm import forker

if TYPE_CHECKING:
    from tests.support.nvml import Host

# A slow machine fails no test: time decides nothing.
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=15)
settings.load_profile("quick")

# The tests keep all cores busy: threads of one training would wait for each other's turns, which
# takes several times the CPU time. Processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

Command = Callable[..., subprocess.CompletedProcess[str]]


def pytest_sessionstart() -> None:
    """Refuse to test a compiled core that is older than its sources."""
    for compiled in (*ROOT.glob("sim/**/*.so"), *ROOT.glob("policies/**/*.so")):
        source = compiled.with_name(compiled.name.partition(".")[0] + ".py")
        if source.exists() and source.stat().st_mtime > compiled.stat().st_mtime:
            pytest.exit(
                f"{source} has changed since it was compiled: `make compile` compiles it again, "
                "`make interpreted` runs it as it is",
                returncode=2,
            )


def run_command(
    *arguments: str | Path, traces: Path, cwd: Path, code: int = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run `wattkeeper` in a process of its own, and check its exit code and that nothing leaks.

    Args:
        arguments: Of the command.
        traces: The trace library.
        cwd: Where.
        code: The exit code.
        more: Of the environment.
    """
    environment = {
        **os.environ,
        "WATTKEEPER_TRACES": str(traces),
        "WATTKEEPER_STATE": str(cwd / "state"),
        "COLUMNS": "120",
        **more,
    }
    words = [*map(str, arguments)]
    if forker().can_run(environment):
        ended = forker().run(words, cwd, environment)
        done = subprocess.CompletedProcess(words, ended.code, ended.stdout, ended.stderr)
    else:
        done = subprocess.run(
            [sys.executable, "-m", "wattkeeper.scenarios", *words],
            capture_output=True,
            text=True,
            cwd=cwd,
            env=environment,
            check=False,
        )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


def small(other: str = "zeus: {policies: {configure: zeus, tune: zeus-jit}}") -> str:
    """A small scenario of two variants as YAML: `default`, and another one."""
    return f"""\
name: small
cluster: {{gpu: SYN-250W, gpus: 2, idle_power_w: 40}}
workload:
  kind: recurring
  profiles: {{synthetic: {{}}}}
  workloads: [image, language]
  recurrences: 4
variants:
  default: {{}}
  {other}
baseline: default
"""


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real traces and published outputs."""
    if not SHARED.is_dir():
        pytest.skip("the folder `shared` with real traces is not beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def zeus_traces(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace library with the Zeus traces and the overlapping groups."""
    library = tmp_path_factory.mktemp("library")
    groups = shared / "reference/zeus/overlapping_groups.csv.gz"
    for arguments in (
        ("zeus-nsdi23", shared / "data/zeus-nsdi23"),
        ("zeus-groups", groups, "--name", "groups"),
    ):
        run_command("traces", "import", *arguments, traces=library, cwd=library)
    return library


@pytest.fixture(scope="session")
def spot_traces(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace library with the spot nodes that published results are on."""
    from tests.support.published_replays import TRACES, trace_name

    library = tmp_path_factory.mktemp("spot")
    for trace in TRACES:
        arguments = ("node-events", shared / "data/spot" / trace, "--name", trace_name(trace))
        run_command("traces", "import", *arguments, traces=library, cwd=library)
    return library


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """`wattkeeper` with an empty trace library, in an empty folder."""

    def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        return run_command(*arguments, traces=tmp_path / "library", cwd=tmp_path, code=code)

    return run


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The same as `command` in this process, which spares a start and what it imports."""
    return inside_with(tmp_path / "library", tmp_path, monkeypatch)


def inside_with(traces: Path, cwd: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`wattkeeper` in this process, in a folder, with a trace library."""
    for name, value in (("WATTKEEPER_TRACES", str(traces)), ("COLUMNS", "120")):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(cwd)

    def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        from wattkeeper.scenarios.cli.main import main

        words = [str(one) for one in arguments]
        done = CliRunner().invoke(main, words)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.output
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def zeus(zeus_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`inside` with the Zeus traces."""
    return inside_with(zeus_traces, tmp_path, monkeypatch)


@pytest.fixture
def spot(spot_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`inside` with the spot nodes."""
    return inside_with(spot_traces, tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def signals_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that sends signals at calls, for `tests.support.signals.start`."""
    from tests.support.signals import build

    return build(tmp_path_factory.mktemp("signals"))


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the NVML of the tests, for `LD_LIBRARY_PATH`."""
    from tests.support.nvml import build

    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def nvml_host(nvml_library: Path) -> Iterator[Host]:
    """A process with that NVML."""
    from tests.support.nvml import Host

    host = Host(nvml_library)
    yield host
    host.close()

"""Live runs whose policies never answer, and those that lack torch."""

from __future__ import annotations

import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.live.controller.test_stops import trained
from tests.support.live_runs import REHEARSED, command, environment, processes, run, scenario
from tests.support.processes import until

LOOPING = """
from pathlib import Path
from typing import ClassVar, Literal

from wattkeeper.policies.points.views import Configuration
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.registry import Point, PolicyConfig

class Looping(Configure):
    def configure(self, ctx, start):
        return Configuration(start.options.default_batch_size)

    def observe(self, ctx, outcome):
        Path("loops").touch()
        while True:
            pass

class LoopingConfig(PolicyConfig):
    point: ClassVar[Point] = "configure"
    kind: Literal["looping"] = "looping"
    policy = Looping
"""
WITHOUT_TORCH = """
import importlib.machinery

finder = importlib.machinery.PathFinder
find_spec = finder.find_spec
finder.find_spec = classmethod(
    lambda cls, name, *more: None if name == "torch" else find_spec(name, *more)
)
"""


def install(folder: Path) -> Path:
    """Make the policy `looping` a distribution in a folder."""
    site = folder / "site"
    about = site / "looping-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "looping.py").write_text(LOOPING)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: looping\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[wattkeeper.policies]\nlooping = looping\n")
    return site


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_policy_that_loops_is_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    variants = {"loops": {"policies": {"configure": "looping"}}}
    content = REHEARSED | {"variants": variants, "baseline": "loops"}
    path = scenario(tmp_path, content, recurrences=2)
    controller = subprocess.Popen(
        command("run", path, "--live", "--out", "live"),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        env=environment(tmp_path, PYTHONPATH=str(install(tmp_path))),
        text=True,
        preexec_fn=partial(signal.signal, number, signal.SIG_DFL),
    )
    until(lambda: (tmp_path / "loops").exists() or controller.poll() is not None)
    controller.send_signal(number)
    said = controller.communicate(timeout=120)[1]
    assert controller.returncode == 130, said
    assert "Traceback" not in said
    until(lambda: not processes(tmp_path))


@pytest.mark.parametrize("how", ["file", "module"])
def test_a_script_that_imports_torch_is_not_started_without_it(how: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(WITHOUT_TORCH)
    path = trained(tmp_path, "any", "a")
    script = tmp_path / "train.py"
    script.write_text(f"from torch import nn\n{script.read_text()}")
    if how == "module":
        module = "[python, -m, wattkeeper.live.examples.cnn]"
        arguments = ["--set", f"live.workloads.a.command={module}"]
    said = run(
        path,
        "--live",
        "--out",
        "live",
        *(arguments if how == "module" else ()),
        cwd=tmp_path,
        code=3,
        WATTKEEPER_DEVICE="none",
        PYTHONPATH=str(site),
    ).stderr
    assert "imports torch, which is not installed: pip install 'wattkeeper[live]'" in said
    assert not list(tmp_path.rglob("output/*"))

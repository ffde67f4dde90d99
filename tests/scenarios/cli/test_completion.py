"""`wattkeeper completion`: what shells complete, and the script that lets bash ask for it."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.conftest import Command
from wattkeeper.policies.registry import POINTS, policies
from wattkeeper.scenarios.cli.completion.shells import SHELLS
from wattkeeper.scenarios.cli.main import main
from wattkeeper.scenarios.spec.loading import shipped

Complete = Callable[..., list[str]]

QUICKSTART = ("default", "zeus", "frugal", "oracle")


@pytest.fixture
def complete(inside: Command, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """What bash is told of some words, of which the last is completed."""

    def ask(*words: str) -> list[str]:
        monkeypatch.setenv("_WATTKEEPER_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", "\n".join(["wattkeeper", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        done = CliRunner().invoke(main, prog_name="wattkeeper")
        assert done.exit_code == 0, done.output
        monkeypatch.delenv("_WATTKEEPER_COMPLETE")
        return [line for line in done.stdout.splitlines() if line]

    return ask


def plain(*values: str) -> list[str]:
    return [f"plain,{value}" for value in values]


def test_names_of_scenarios(complete: Complete) -> None:
    zeus = [name for name in shipped() if name.startswith("zeus")]
    for command in ("run", "validate", "scenarios", "bench"):
        assert complete(command, "zeus") == plain(*zeus)
    assert complete("run", "./mine") == ["file,./mine"]


def test_names_of_traces(complete: Complete, inside: Command) -> None:
    assert complete("traces", "describe", "ma") == ["file,ma"]
    inside("traces", "generate", "jobs", "--jobs", "20", "--name", "made")
    assert complete("traces", "describe", "ma") == plain("made")
    assert complete("run", "quickstart", "--set", "workload.trace", "=") == plain("made")


def test_policies_of_variants(complete: Complete) -> None:
    keys = [f"variants.{name}.policies.{point}=" for name in QUICKSTART for point in POINTS]
    assert complete("run", "quickstart", "--set", "variants.") == plain(*keys)
    tune = "variants.zeus.policies.tune"
    assert complete("run", "quickstart", "--set", tune, "=") == plain(*policies("tune"))
    assert complete("run", "quickstart", "--set", tune, "=", "zeu") == plain("zeus-jit")
    assert complete("run", "quickstart", "--set", f"{tune}.kind", "=", "zeu") == plain("zeus-jit")
    assert complete("run", "quickstart", "--sweep", "baseline", "=", "o") == plain("oracle")
    again = ("run", "quickstart", "--set", "objective.eta", "=", "1", "--set", "baseline", "=", "z")
    assert complete(*again) == plain("zeus")
    assert complete("run", "no-such-file.yaml", "--set", "variants.") == []
    assert complete("run", "quickstart", "--set", "objective.eta", "=") == []


def test_variants_of_results(complete: Complete, inside: Command) -> None:
    few = ("--set", "workload.recurrences=1", "--set", "workload.workloads=[image]")
    inside("run", "quickstart", *few, "--seeds", "1", "--out", "out")
    assert complete("timeline", "out", "--variant", "") == plain(*QUICKSTART)
    assert complete("timeline", "out", "--seed", "1", "--variant", "f") == plain("frugal")
    assert complete("timeline", "nowhere", "--variant", "") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell: str, inside: Command) -> None:
    script = inside("completion", shell).stdout
    assert f"_WATTKEEPER_COMPLETE={shell}_complete" in script
    assert "compopt" in script or shell != "bash"
    if shutil.which(shell):
        subprocess.run([shell, "-n", "/dev/stdin"], input=script, text=True, check=True)


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_bash_completes_with_its_script(tmp_path: Path, inside: Command) -> None:
    command = tmp_path / "wattkeeper"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m wattkeeper.scenarios "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "completion").write_text(inside("completion", "bash").stdout)
    program = (
        ". ./completion\n"
        "COMP_WORDS=(wattkeeper run quickstart --set variants.zeus.policies.tune = zeus)\n"
        "COMP_CWORD=6\n_wattkeeper_completion ./wattkeeper\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\ncomplete -p wattkeeper\n'
    )
    done = subprocess.run(
        ["bash", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found, registered = done.stdout.splitlines()
    assert found == "zeus-jit"
    assert "-F _wattkeeper_completion" in registered

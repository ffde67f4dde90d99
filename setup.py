"""Maps the top-level folders to packages of the namespace `wattkeeper`, and compiles the core.

Everything else stands in pyproject.toml. The mapping is here because TOML cannot search for the
sub-packages: `policies/configure/` becomes `wattkeeper.policies.configure` without being listed.
`wattkeeper` itself has no folder and no `__init__.py`: it is a namespace package.
"""

import os
import sys
from pathlib import Path

from mypyc.build import mypycify
from setuptools import Extension, find_packages, setup

FLOORS = ("policies", "traces", "sim", "live", "scenarios")

CORE = (
    "policies/place/_tightest.py",
    "policies/profile.py",
    "policies/protocols.py",
    "policies/select/_discretised.py",
    "policies/select/_preempting.py",
    "policies/select/_queueing.py",
    "sim/cluster/cluster.py",
    "sim/cluster/what_if.py",
    "sim/engine/attempt.py",
    "sim/engine/backend.py",
    "sim/engine/decisions.py",
    "sim/engine/environment.py",
    "sim/engine/feasibility.py",
    "sim/engine/inheritances.py",
    "sim/engine/node_states.py",
    "sim/engine/recorder.py",
    "sim/engine/replay.py",
    "sim/engine/retries.py",
    "sim/engine/sources.py",
    "sim/engine/validation.py",
    "sim/engine/world.py",
)
"""What every simulated job passes through. mypyc compiles it; as plain Python it does the same,
several times slower. So a C compiler is welcome, not needed."""

BUILDING = {"bdist_wheel", "build_ext", "editable_wheel"}


def core() -> list[Extension]:
    """The extension modules of the core."""
    if not BUILDING & set(sys.argv):  # what is asked for is metadata
        return []
    # mypyc takes the name of a module from its path.
    root = Path("build", "core", "wattkeeper")
    root.mkdir(parents=True, exist_ok=True)
    for floor in FLOORS:
        link = root / floor
        if not link.is_symlink():
            link.symlink_to(Path("..", "..", "..", floor), target_is_directory=True)
    options = ["--config-file=", "--namespace-packages", "--explicit-package-bases",
               "--ignore-missing-imports"]  # fmt: skip
    os.environ["MYPYPATH"] = str(root.parent)
    modules = mypycify(
        [*options, *(str(root / path) for path in CORE)],
        group_name="wattkeeper.policies.core",  # in the lowest floor, since all import it
        debug_level="0",
    )
    for module in modules:
        module.optional = True
        module.extra_compile_args.append("-ffp-contract=off")  # as Python rounds, on any machine
    return modules


packages = [
    f"wattkeeper.{name}"
    for floor in FLOORS
    for name in (floor, *(f"{floor}.{sub}" for sub in find_packages(floor)))
]

setup(
    packages=packages,
    package_dir={f"wattkeeper.{floor}": floor for floor in FLOORS},
    ext_modules=core(),
    include_package_data=False,  # package_data alone decides; folders of data are not packages
    package_data={
        **{f"wattkeeper.{floor}": ["py.typed", "**/*.json"] for floor in FLOORS},
        "wattkeeper.scenarios": ["py.typed", "**/*.json", "**/*.yaml"],
        "wattkeeper.scenarios.report": ["*.html", "*.css", "*.js", "vendor/**"],
    },
)

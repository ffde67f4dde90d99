"""Maps the top-level folders to packages of the namespace `wattkeeper`.

With `WATTKEEPER_COMPILE=1` in the environment, mypyc compiles the core in whatever is built.

Everything else stands in pyproject.toml. The mapping is here because TOML cannot search for the
sub-packages: `policies/configure/` becomes `wattkeeper.policies.configure` without being listed.
`wattkeeper` itself has no folder and no `__init__.py`: it is a namespace package.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

FLOORS = ("policies", "traces", "sim", "live", "scenarios")

CORE = (
    "policies/points/moments.py",
    "policies/pipeline/event_shifts.py",
    "policies/pipeline/exact_walk.py",
    "policies/pipeline/execution.py",
    "policies/pipeline/flow.py",
    "policies/pipeline/published_walk.py",
    "policies/pipeline/rounding.py",
    "policies/place/_first_fit.py",
    "policies/place/_sharing.py",
    "policies/place/_tightest.py",
    "policies/profile.py",
    "policies/points/configure.py",
    "policies/points/job.py",
    "policies/points/place.py",
    "policies/points/policy.py",
    "policies/points/select.py",
    "policies/points/tune.py",
    "policies/points/views.py",
    "policies/scheduling/backfilling.py",
    "policies/scheduling/discretised.py",
    "policies/scheduling/gittins.py",
    "policies/scheduling/las.py",
    "policies/scheduling/preempting.py",
    "policies/scheduling/queueing.py",
    "sim/cluster/checkpoints.py",
    "sim/cluster/cluster.py",
    "sim/cluster/losses.py",
    "sim/cluster/what_if.py",
    "sim/attempts/attempt.py",
    "sim/attempts/decided.py",
    "sim/attempts/pace.py",
    "sim/engine/backend.py",
    "sim/engine/board.py",
    "sim/engine/core.py",
    "sim/engine/booking.py",
    "sim/engine/lifecycle.py",
    "sim/engine/node_losses.py",
    "sim/engine/subscriber.py",
    "sim/engine/pauses.py",
    "sim/engine/power_limits.py",
    "sim/engine/preparation.py",
    "sim/engine/retries.py",
    "sim/engine/selection_pass.py",
    "sim/engine/selector.py",
    "sim/engine/signal_changes.py",
    "sim/engine/submission.py",
    "sim/engine/tune_signals.py",
    "sim/attempts/decisions.py",
    "sim/kernel/loop.py",
    "sim/engine/feasibility.py",
    "sim/engine/inheritances.py",
    "sim/engine/node_states.py",
    "sim/engine/power_cap.py",
    "sim/engine/queues.py",
    "sim/attempts/service.py",
    "sim/kernel/context.py",
    "sim/kernel/hosting.py",
    "sim/kernel/journal.py",
    "sim/kernel/rows.py",
    "sim/recording/cluster_journal.py",
    "sim/recording/recorder.py",
    "sim/replay/backend.py",
    "sim/replay/counted.py",
    "sim/replay/epochs.py",
    "sim/replay/recorded.py",
    "sim/replay/replayed.py",
    "sim/replay/slices.py",
    "sim/replay/training.py",
    "sim/engine/retuner.py",
    "sim/engine/sources.py",
    "sim/engine/stragglers.py",
    "sim/replay/unprofiled.py",
    "sim/attempts/validation.py",
    "sim/engine/world.py",
)
"""What every simulated job passes through. mypyc compiles it; as plain Python it does the same,
several times slower."""

LIBRARY = "wattkeeper.policies.core"
"""The compiled core; in the lowest floor, since all import it."""


DEPENDENCIES = [
    "filelock>=3.32,<5",
    "mypy-extensions>=1,<2",
    "numpy>=2,<3",
    "pandas>=2.2,<4",
    "platformdirs>=4.14,<5",
    "psutil>=7,<8",
    "pyarrow>=17",
    "pydantic>=2.9,<3",
    "PyYAML>=6,<7",
    "click>=8.1,<9",
    "rich>=13",
    "simpy>=4.1,<4.2",  # the engine sets its time, which is private
    "typing_extensions>=4.12,<5",
]
FOR_COMPILED = "librt>=0.16,<1"  # mypy's own, for compiled code


def check_compiler() -> None:
    """End the build if there is no C compiler with Python's headers."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    command = [*compiler, f"-I{sysconfig.get_path('include')}", "-fsyntax-only", "-xc", "-"]
    try:
        done = subprocess.run(command, input=b"#include <Python.h>\n", capture_output=True)
    except OSError:
        done = None
    if done is None or done.returncode != 0:
        sys.exit(
            f"wattkeeper: no C compiler with Python's headers ({compiler[0]}) to compile the core; "
            "on Debian or Ubuntu: apt install gcc python3-dev"
        )


def core() -> list[Extension]:
    """The extension modules of the core."""
    from mypyc.build import mypycify

    # mypyc takes the name of a module from its path.
    root = Path("build", "core", "wattkeeper")
    root.mkdir(parents=True, exist_ok=True)
    for floor in FLOORS:
        link = root / floor
        if not link.is_symlink():
            link.symlink_to(Path("..", "..", "..", floor), target_is_directory=True)
    # `make check` looks for errors of types; here some libraries are not installed.
    options = [
        "--config-file=",
        "--namespace-packages",
        "--explicit-package-bases",
        "--ignore-missing-imports",
        "--follow-imports=silent",
    ]
    os.environ["MYPYPATH"] = str(root.parent)
    modules = mypycify(
        [*options, *(str(root / path) for path in CORE)],
        group_name=LIBRARY,
        opt_level="1",  # 40 % less time to compile than level 3, and as fast
        debug_level="0",
    )
    modules[0].extra_compile_args += [
        "-ffp-contract=off",  # as Python rounds, on any machine
        # Calls within the library are direct: runs of many jobs take 5 to 8 % less time.
        "-fvisibility=hidden",
    ]
    return modules


class BuildCore(build_ext):
    """Translates the core when extensions are built, not whenever metadata is asked for."""

    def run(self) -> None:
        """Compile."""
        self.distribution.ext_modules = core()
        self.swig_opts = None  # what it was at first: a list cannot be finalized again
        self.finalize_options()  # takes the extensions over
        self.parallel = os.cpu_count()
        super().run()


packages = [
    f"wattkeeper.{name}"
    for floor in FLOORS
    for name in (floor, *(f"{floor}.{sub}" for sub in find_packages(floor)))
]
compiled = os.environ.get("WATTKEEPER_COMPILE") == "1"
if compiled:
    check_compiler()

setup(
    packages=packages,
    package_dir={f"wattkeeper.{floor}": floor for floor in FLOORS},
    ext_modules=[Extension(f"{LIBRARY}__mypyc", [])] if compiled else [],
    cmdclass={"build_ext": BuildCore},
    setup_requires=["mypy[mypyc]>=2.4,<3"] if compiled else [],
    install_requires=[*DEPENDENCIES, FOR_COMPILED] if compiled else DEPENDENCIES,
    include_package_data=False,  # package_data alone decides; folders of data are not packages
    package_data={
        **{f"wattkeeper.{floor}": ["py.typed", "**/*.json"] for floor in FLOORS},
        "wattkeeper.scenarios": ["py.typed", "**/*.json", "**/*.yaml", "**/*.csv"],
        "wattkeeper.scenarios.report": ["*.html", "*.css", "*.js", "vendor/**"],
    },
)

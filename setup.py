"""Maps the top-level folders to packages of the namespace `wattkeeper`.

With `WATTKEEPER_COMPILE=1` in the environment, mypyc compiles the core in whatever is built.

Everything else stands in pyproject.toml. The mapping is here because TOML cannot search for the
sub-packages: `policies/configure/` becomes `wattkeeper.policies.configure` without being listed.
`wattkeeper` itself has no folder and no `__init__.py`: it is a namespace package.
"""

import ast
import os
import re
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
    "sim/engine/features/node_losses.py",
    "sim/engine/subscriber.py",
    "sim/engine/features/pauses.py",
    "sim/engine/features/power_limits.py",
    "sim/engine/preparation.py",
    "sim/engine/retries.py",
    "sim/engine/selection_pass.py",
    "sim/engine/selection/selector.py",
    "sim/engine/features/signal_changes.py",
    "sim/engine/submission.py",
    "sim/engine/features/tune_signals.py",
    "sim/attempts/decisions.py",
    "sim/kernel/loop.py",
    "sim/engine/selection/feasibility.py",
    "sim/engine/inheritances.py",
    "sim/engine/node_states.py",
    "sim/engine/features/power_cap.py",
    "sim/engine/selection/queues.py",
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
    "sim/engine/features/retuner.py",
    "sim/engine/sources.py",
    "sim/engine/features/stragglers.py",
    "sim/replay/unprofiled.py",
    "sim/attempts/validation.py",
    "sim/engine/world.py",
)
"""What every simulated job passes through. mypyc compiles it; as plain Python it does the same,
several times slower."""

SIGNATURE = '\\n--\\n\\n"'
"""What ends the signature of a class or function in the C source of the core."""
UNSIGNED = "PyDoc_STR(NULL)"
"""Stands in the place of a signature that mypyc cannot write."""
NAMED = re.compile(r"CPyType_(\w+)_template_ = |\(PyCFunction\)CPyPy_(\w+),")
FIELD = re.compile(r"\(getter\)(\w+)_get_(\w+),")
"""What names a class or function there, and a property."""

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


def read_docstrings(root: Path) -> dict[str, str]:
    """The docstrings of classes, functions, methods and properties of the core, by their C names.

    mypyc shortens the name of a module as long as it is unique: all shorter names are listed.
    """
    texts: dict[str, str] = {}

    def collect(node: ast.Module | ast.ClassDef, names: tuple[str, ...]) -> None:
        for each in node.body:
            if isinstance(each, (ast.ClassDef, ast.FunctionDef)):
                own = (*names, each.name)
                if text := ast.get_docstring(each):
                    for begin in range(len(module)):
                        texts.setdefault("___".join(own[begin:]), text)
                if isinstance(each, ast.ClassDef):
                    collect(each, own)

    for path in CORE:
        module = Path(path).with_suffix("").parts
        collect(ast.parse((root / path).read_text(encoding="utf-8")), module)
    return texts


def add_docstrings(source: Path, texts: dict[str, str]) -> None:
    """Write docstrings into the C source of the core, in which mypyc leaves signatures alone."""
    name, lines = "", []
    with source.open(encoding="utf-8") as file:
        for line in file:
            if found := NAMED.search(line):
                name = next(filter(None, found.groups()))
            elif found := FIELD.search(line):
                name = f"{found[1]}___{found[2]}"
            text = texts.get(name)
            if text and SIGNATURE in line:
                line = line.replace(SIGNATURE, f'{SIGNATURE[:-1]}{to_c(text)}"', 1)
                name = ""
            elif text and UNSIGNED in line:
                line = line.replace(UNSIGNED, f'PyDoc_STR("{to_c(text)}")')
                name = ""
            elif text and line.rstrip().endswith("NULL, NULL},"):
                line = line.replace("NULL, NULL},", f'"{to_c(text)}", NULL}},')
                name = ""
            lines.append(line)
    source.write_text("".join(lines), encoding="utf-8")


def to_c(text: str) -> str:
    """A text inside of a string of C."""
    plain = {ord(each) for each in " !#$%&'()*+,-./:;<=>@[]^_`{|}~"}
    return "".join(
        chr(byte) if byte in plain or (chr(byte).isalnum() and byte < 128) else f"\\{byte:03o}"
        for byte in text.encode()
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
    texts = read_docstrings(root)
    for path in {path for module in modules for path in module.sources}:
        add_docstrings(Path(path), texts)
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
        "wattkeeper.traces": ["py.typed", "**/*.json", "**/*.parquet"],
        "wattkeeper.scenarios": ["py.typed", "**/*.json", "**/*.yaml", "**/*.csv"],
        "wattkeeper.scenarios.report": ["*.html", "*.css", "*.js", "vendor/**"],
    },
)

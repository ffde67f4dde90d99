"""No module of `policies/` reads a clock, does I/O or draws without a name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from wattkeeper.policies import configure

ROOT = Path(configure.__file__).parents[1]
SOURCES = sorted(ROOT.rglob("*.py"))
IMPURE = {"datetime", "os", "pandas", "pynvml", "random", "secrets", "simpy", "socket"}
IMPURE |= {"subprocess", "threading", "time", "torch", "uuid"}
IMPURE_CALLS = {"__import__", "eval", "exec", "input", "open", "print"}


def impurities(source: str) -> list[str]:
    """Clocks, I/O and unnamed randomness in a module."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.partition(".")[0] in IMPURE]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.partition(".")[0] in IMPURE:
                found.append(module)
            if module in ("numpy", "numpy.random"):
                found += [a.name for a in node.names if a.name not in ("Generator", "typing")]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] if node.func.id in IMPURE_CALLS else []
        elif isinstance(node, ast.Attribute) and node.attr != "Generator":
            owner = node.value
            if isinstance(owner, ast.Attribute) and owner.attr == "random":
                found.append(f"random.{node.attr}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_policies_are_pure(path: Path) -> None:
    assert impurities(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "import os.path",
        "def late():\n    from time import monotonic",
        "import numpy as np\nx = np.random.default_rng()",
        "from numpy.random import default_rng",
        "from numpy import random",
        "y = open('state')",
        "z = __import__('os')",
    ],
)
def test_an_impure_line_is_found(line: str) -> None:
    assert impurities(line)

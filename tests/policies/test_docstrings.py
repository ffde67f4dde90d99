"""`help` of what is compiled shows the docstrings of its sources."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from wattkeeper.policies.scheduling.preempting import TrackedJob
from wattkeeper.scenarios.notebook.docstrings import MODULES, restore_docstrings

ROOT: Final = Path(__file__).resolve().parents[2]
FILLER: Final = "mypyc filler docstring"
"""What mypyc gives named tuples and data classes, which only `wattkeeper.scenarios` restores."""


def core() -> list[str]:
    """The files of the core, as setup.py lists them."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    listed = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CORE"
    )
    return list(ast.literal_eval(listed))


def documented(file: str) -> Iterator[tuple[str, str, Any]]:
    """Name, docstring of the source and object of the classes, functions and methods of a file."""
    module = import_module(f"wattkeeper.{file.removesuffix('.py').replace('/', '.')}")
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        found = getattr(module, node.name)
        if (text := ast.get_docstring(node)) is not None:
            yield node.name, text, found
        if not isinstance(node, ast.ClassDef) or (found.__doc__ or "").startswith(FILLER):
            continue
        is_tuple = issubclass(found, tuple) or hasattr(found, "__dataclass_fields__")
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not is_tuple:
                own = vars(found).get(method.name)
                text = ast.get_docstring(method)
                if own is not None and text is not None and not method.name.startswith("__"):
                    yield f"{node.name}.{method.name}", text, getattr(own, "__func__", own)


@pytest.mark.parametrize("file", core())
def test_what_is_compiled_has_the_docstrings_of_its_source(file: str) -> None:
    restore_docstrings()
    restored = {module.__name__ for module in MODULES}
    for name, text, found in documented(file):
        own = inspect.cleandoc(found.__doc__ or "")
        if own == FILLER and f"wattkeeper.{file[:-3].replace('/', '.')}" not in restored:
            continue
        assert own.startswith(text), name


def test_the_fields_of_a_tracked_job_are_documented() -> None:
    described = inspect.cleandoc(TrackedJob.__doc__ or "").partition("Attributes:")[2]
    fields = [name for name, value in vars(TrackedJob).items() if inspect.isdatadescriptor(value)]
    assert len(fields) > 5
    for name in fields:
        assert f"    {name}: " in described

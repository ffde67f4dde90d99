"""Docstrings of what policies see, for notebooks: with signatures, which compiled classes lack."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.resources import files

from wattkeeper.policies import profile
from wattkeeper.policies.points import configure, job, moments, place, policy, select, tune, views

MODULES = (configure, job, moments, place, policy, profile, select, tune, views)
"""Modules that are compiled, with what policies see."""


def restore_docstrings() -> None:
    """Give the classes that policies see docstrings that list their methods, from the sources.

    What is compiled has no annotations, and its named tuples and data classes no docstrings; other
    classes and their methods have those from the build (setup.py).
    """
    for module in MODULES:
        package, _, name = module.__name__.rpartition(".")
        source = files(package) / f"{name}.py"  # the module's own path may be that of a library
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                getattr(module, node.name).__doc__ = _describe_class(node)


def _describe_class(node: ast.ClassDef) -> str:
    text = ast.get_docstring(node) or ""
    methods = "\n".join(_list_methods(node))
    return f"{text}\n\nMethods:\n{methods}" if methods else text


def _list_methods(node: ast.ClassDef) -> Iterator[str]:
    """A line for each public method and property: its signature, and what it does."""
    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name.startswith("_"):
            continue
        summary = (ast.get_docstring(method) or "").partition("\n")[0]
        yield f"    {format_signature(method)}: {summary}"


def format_signature(method: ast.FunctionDef) -> str:
    """How a method is called, or the name of a property; with annotations."""
    returned = ast.unparse(method.returns) if method.returns else "None"
    if any(ast.unparse(each) == "property" for each in method.decorator_list):
        return f"{method.name}: {returned}"
    arguments = re.sub(r"^self(, )?", "", ast.unparse(method.args))
    return f"{method.name}({arguments}) -> {returned}"

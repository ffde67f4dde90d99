"""In notebooks, the classes that policies see have docstrings, compiled or not."""

from __future__ import annotations

import ast
import inspect
from importlib.resources import files

from tests.support.messages import assert_states
from wattkeeper import scenarios
from wattkeeper.policies import protocols


def test_views_and_decision_points_say_what_they_are() -> None:
    assert scenarios.load is not None
    source = files("wattkeeper.policies").joinpath("protocols.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            text = inspect.getdoc(getattr(protocols, node.name)) or ""
            assert text.startswith(ast.get_docstring(node) or "none"), node.name
    assert_states(
        inspect.getdoc(protocols.Context) or "",
        "rng(name: str) -> np.random.Generator: The policy's random stream",
        "now_s: float: Time since the start of the run, s.",
    )
    assert_states(
        inspect.getdoc(protocols.Configure) or "",
        "configure(ctx: Context, start: Start) -> Configuration: ",
    )

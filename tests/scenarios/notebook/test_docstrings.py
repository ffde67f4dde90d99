"""In notebooks, the classes that policies see have docstrings, compiled or not."""

from __future__ import annotations

import ast
import inspect
from importlib.resources import files

from tests.support.messages import assert_states
from wattkeeper import scenarios
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.scenarios.notebook.docstrings import MODULES


def test_views_and_decision_points_say_what_they_are() -> None:
    assert scenarios.load is not None
    for module in MODULES:
        package, _, name = module.__name__.rpartition(".")
        source = files(package).joinpath(f"{name}.py").read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                text = inspect.getdoc(getattr(module, node.name)) or ""
                assert text.startswith(ast.get_docstring(node) or "none"), node.name
    assert_states(
        inspect.getdoc(Context) or "",
        "rng(name: str) -> np.random.Generator: The policy's random stream",
        "now_s: float: Time since the start of the run, s.",
    )
    assert_states(
        inspect.getdoc(Configure) or "", "configure(ctx: Context, start: Start) -> Configuration: "
    )

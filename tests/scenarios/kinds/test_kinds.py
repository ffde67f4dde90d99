"""A kind of workload is one object in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from wattkeeper.scenarios.kinds.kind import WorkloadKind, find_kind
from wattkeeper.scenarios.spec.sections.workload import SECTIONS

SCENARIOS: Final = Path(__file__).resolve().parents[3] / "scenarios"

REGISTRY: Final = "spec/sections/workload.py"
"""It lists all sections, and holds some."""

PLACES: Final = {
    "bench/random_scenarios.py": {"elastic", "pipeline", "recurring", "trace"},  # it writes them
    "contract/trials.py": {"elastic", "recurring"},  # it writes them
    "contract/worlds.py": {"trace"},
    "kinds/elastic.py": {"trace"},  # jobs that share the cluster
    "kinds/replayed.py": {"recurring", "trace"},  # which it is the base of
}
"""The modules that name a kind beyond its own and the registry; this list only gets shorter."""


def named_kinds(path: Path) -> Iterator[str]:
    """The kinds whose section a module names, or whose name it compares or states as `kind`."""
    sections = {section.__name__: name for name, section in SECTIONS.items()}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.alias | ast.Name):
            identifier = node.name if isinstance(node, ast.alias) else node.id
            if identifier in sections:
                yield sections[identifier]
        texts: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            # The left side of `in` is a key, as a rule.
            left = [] if isinstance(node.ops[0], ast.In | ast.NotIn) else [node.left]
            for each in (*left, *node.comparators):
                texts += each.elts if isinstance(each, ast.Tuple | ast.Set) else [each]
        elif isinstance(node, ast.Dict):
            keys = zip(node.keys, node.values, strict=True)
            texts = [v for k, v in keys if isinstance(k, ast.Constant) and k.value == "kind"]
        for text in texts:
            if isinstance(text, ast.Constant) and text.value in SECTIONS:
                yield str(text.value)


def test_few_places_name_a_kind_of_workload() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(SCENARIOS.rglob("*.py")):
        module = path.relative_to(SCENARIOS).as_posix()
        own = {
            name
            for name, section in SECTIONS.items()
            if module in (f"kinds/{name}.py", f"document/{name}.py")
            or section.__module__ == f"wattkeeper.scenarios.{module[:-3].replace('/', '.')}"
        }
        others = set(named_kinds(path)) - own
        if others and module != REGISTRY:
            found[module] = others
    assert found == PLACES, "a kind's own attributes and methods say what is special about it"


@pytest.mark.parametrize("name", SECTIONS)
def test_each_kind_has_one_object(name: str) -> None:
    assert isinstance(find_kind(name), WorkloadKind)
    assert find_kind(name) is find_kind(name)

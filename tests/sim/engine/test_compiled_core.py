"""Classes of the compiled core have compiled bases: others would share memory with their fields."""

import re
from importlib import import_module
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[3] / "setup.py"
CORE = re.findall(r'^    "(.*)\.py",$', SETUP.read_text(encoding="utf-8"), re.MULTILINE)
PYTHONS_OWN = {"abc", "builtins", "typing"}


@pytest.mark.parametrize("path", CORE)
def test_classes_of_the_core_have_bases_of_the_core(path: str) -> None:
    name = f"wattkeeper.{path.replace('/', '.')}"
    module = import_module(name)
    allowed = PYTHONS_OWN | {f"wattkeeper.{other.replace('/', '.')}" for other in CORE}
    classes = [
        kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == name
    ]
    bases = {base.__module__ for kind in classes for base in kind.__mro__}
    assert bases <= allowed

"""Nothing that is read from a file, or comes from other processes than our own, can run code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.conftest import ROOT

MAY_PICKLE = {
    "live/elastic/training.py": "checks that a function can be sent; reads nothing",
    "scenarios/contract/other_process.py": "a process of its own, over pipes",
    "scenarios/contract/suite.py": "what it has just pickled",
    "scenarios/run/worker.py": "worker processes of the command, over a socket pair",
    "traces/files/shared.py": "a file without a name, which only worker processes inherit",
}
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for floor in ("policies", "traces", "sim", "live", "scenarios"):
        for path in sorted((ROOT / floor).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_only_named_modules_pickle() -> None:
    found = {
        name
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and MODULES & {alias.name.partition(".")[0] for alias in node.names}
        | MODULES & {getattr(node, "module", None)}
    }
    assert found == MAY_PICKLE.keys()  # each with its reason; that they are found shows the search


def test_readers_that_could_run_code_are_told_not_to() -> None:
    wrong = []
    for name, tree in sources():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called, keys = ast.unparse(node.func), {key.arg: key.value for key in node.keywords}
            weights = keys.get("weights_only")
            if called == "torch.load" and not (
                isinstance(weights, ast.Constant) and weights.value is True
            ):
                wrong.append(f"{name}:{node.lineno} {called}")
            if called in ("yaml.load", "yaml.unsafe_load", "yaml.full_load", "eval"):
                wrong.append(f"{name}:{node.lineno} {called}")
            if "allow_pickle" in keys:
                wrong.append(f"{name}:{node.lineno} allow_pickle")
    assert wrong == []

"""The page on the protocol of policies, made from the sources.

Nothing is written down twice: texts are docstrings and signatures, read from the source files (what
is compiled has none), the rules those of the contract, and the examples those of
`wattkeeper policy new`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from wattkeeper.policies import points
from wattkeeper.policies.registry import POINTS
from wattkeeper.scenarios.contract import check, impurities, lines, suite, watch
from wattkeeper.scenarios.contract.new_policy import EXAMPLES, PREEMPTIVE, read_example
from wattkeeper.scenarios.notebook.docstrings import format_signature

ROOT = Path(points.__file__).parents[2]

DECISIONS = {
    "configure": ("policies/points/views.py", "Configuration"),
    "select": ("policies/points/select.py", "Selection"),
    "place": ("policies/points/job.py", "Placement", "Slot"),
    "tune": ("policies/points/views.py", "Knobs", "Slice"),
    "replan": ("policies/points/replan.py", "Reshape", "Shape", "ShapeStage"),
    "retain": ("policies/points/retain.py", "Retention"),
}
"""File and names of what each decision point answers."""

VIEWS = {
    "policies/points/job.py": ("Job",),
    "policies/points/views.py": ("Options", "Start", "Running", "Measurement", "Outcome"),
    "policies/points/place.py": ("ClusterView",),
    "policies/points/select.py": ("CapacityView",),
    "policies/points/policy.py": ("ZooView",),
    "policies/points/moments.py": ("Progress",),
    "policies/points/replan.py": ("ElasticView", "ElasticTask"),
    "policies/points/retain.py": ("StoredModel", "StoredModels"),
    "policies/zoo_views.py": ("ChildModel", "TrainedModel"),
    "policies/signals.py": ("SignalView",),
}
"""Names of what policies are shown, by file."""

RULES = (
    suite.check_determinism,
    suite.check_restart,
    suite.check_copied_state,
    suite.check_strangers,
    suite.check_recorded,
    suite.check_copies,
)


def protocol() -> str:
    """Views, decisions, moments, context, state, what is pure, and the examples."""
    page = [
        "# The protocol of policies",
        "",
        "Made from the sources: what a policy is asked, what it sees, what it answers, and what it "
        "must keep to. [Adding a policy](../policy.md) shows one from its first line to a live "
        "run.",
        *_points(),
        *_views(),
        *_moments(),
        *_context(),
        *_state(),
        *_config(),
        *_sources(),
        *_examples(),
    ]
    return "\n".join(page) + "\n"


def _points() -> Iterator[str]:
    yield from ("", "## Decision points", "", "All of them have these methods:", "")
    yield from _methods("policies/points/policy.py", "Policy")
    for point, (_, base, _) in POINTS.items():
        file, *answers = DECISIONS[point]
        yield from ("", f"### `{point}`", "", _docstring(_find(_file_of(base), base.__name__)), "")
        yield from _methods(_file_of(base), base.__name__)
        for name in answers:
            yield from ("", f"#### `{name}`", "", *_describe(file, name))


def _views() -> Iterator[str]:
    yield from ("", "## Views", "", "Nothing that a policy is shown can be changed.")
    for file, names in VIEWS.items():
        for name in names:
            yield from ("", f"### `{name}`", "", *_describe(file, name))


def _moments() -> Iterator[str]:
    yield from ("", "## Moments", "", "`Tune` is asked at the moments that its config names:", "")
    yield _docstring(_find("policies/points/moments.py", "Moment"))
    yield from ("", "`Replan` is asked at these:", "")
    yield _docstring(_find("policies/points/replan.py", "ReplanMoment"))


def _context() -> Iterator[str]:
    yield from ("", "## Context and random streams", "")
    yield from _describe("policies/points/policy.py", "Context")
    yield from (
        "",
        "What is drawn depends on the seed, the decision point and the name of the "
        "stream alone: other policies change nothing. A config whose policy draws says "
        "`draws`.",
    )


def _state() -> Iterator[str]:
    yield from (
        "",
        "## State, and what is pure",
        "",
        "`wattkeeper policy check` and the tests of wattkeeper go through these rules:",
        "",
    )
    yield from (f"- {inspect.getdoc(rule)}" for rule in RULES)
    yield from ("", "These are faults, wherever a line of the file does it:", "")
    faults = (
        watch.CHANGED,
        impurities.CLOCK.format("such as time.time"),
        lines.GLOBAL_DRAW,
        impurities.ENTROPY.format("such as os.urandom"),
        check.OTHER_HASHES,
    )
    yield from (f"- It {fault}." for fault in faults)
    yield "- It asks for foresight, a signal or a stream that its config does not declare."


def _config() -> Iterator[str]:
    yield from ("", "## What a config declares", "")
    yield from _describe("policies/registry.py", "PolicyConfig")


def _sources() -> Iterator[str]:
    yield from ("", "## Sources", "", "[A source of jobs](../sources.md) has an example.", "")
    yield from _describe("sim/engine/sources.py", "Source")


def _examples() -> Iterator[str]:
    yield from (
        "",
        "## An example of each",
        "",
        "`wattkeeper policy new POINT NAME` writes them, with another name.",
    )
    for point in POINTS:
        yield from _show_example(f"`{point}: {EXAMPLES[point]}`", point)
        if point in PREEMPTIVE:
            name, kind = PREEMPTIVE[point]
            yield from _show_example(f"`{point}: {kind}` (`--preemptive`)", name)


def _show_example(title: str, name: str) -> Iterator[str]:
    yield from (
        "",
        f"### {title}",
        "",
        "```python",
        read_example(name).rstrip(),
        "```",
        "",
        "Its test:",
        "",
        "```python",
        read_example(name, "_test").rstrip(),
        "```",
    )


def _file_of(defined: type) -> str:
    return defined.__module__.removeprefix("wattkeeper.").replace(".", "/") + ".py"


def _find(file: str, name: str) -> ast.stmt:
    """The definition of a name in a file; of a value, the docstring that follows it."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    for number, node in enumerate(body):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return body[number + 1]
    raise LookupError(f"{file} has no {name}")


def _docstring(node: ast.AST) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(str(node.value.value))
    assert isinstance(node, ast.ClassDef | ast.FunctionDef), ast.dump(node)
    text = ast.get_docstring(node)
    assert text, f"{node.name} has no docstring"
    return text


def _describe(file: str, name: str) -> Iterator[str]:
    """The docstring of a class, its attributes as a table, and its properties and methods."""
    node = _find(file, name)
    text, _, attributes = _docstring(node).partition("\nAttributes:\n")
    attributes, _, rest = attributes.partition("\n\n")
    yield text.strip()
    rows = list(_attributes(attributes)) + list(_class_variables(node))
    if rows:
        yield from ("", "| attribute | meaning |", "|---|---|", *rows)
    if rest:
        yield from ("", rest)
    yield ""
    yield from _methods(file, name)


def _attributes(section: str) -> Iterator[str]:
    for name, text in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
        yield f"| `{name}` | {_cell(text)} |"


def _class_variables(node: ast.stmt) -> Iterator[str]:
    """Attributes of a class whose docstrings follow them."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    for variable, after in pairwise(body):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(variable, ast.AnnAssign) and is_text:
            assert isinstance(variable.target, ast.Name)
            yield f"| `{variable.target.id}` | {_cell(_docstring(after))} |"


def _methods(file: str, name: str) -> Iterator[str]:
    node = _find(file, name)
    for method in node.body if isinstance(node, ast.ClassDef) else ():
        if not isinstance(method, ast.FunctionDef) or method.name.startswith("_"):
            continue
        if any(ast.unparse(decorator) == "classmethod" for decorator in method.decorator_list):
            continue
        text, _, _ = _docstring(method).partition("\n\nArgs:")
        yield f"- `{format_signature(method)}`: {_cell(text)}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")

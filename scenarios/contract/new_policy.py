"""Makes a policy file and its test from the example of a decision point."""

import re
import shlex
import sys
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.parts import find_part
from wattkeeper.policies.registry import Point

NAME: Final = re.compile("[a-z][a-z0-9]*(-[a-z0-9]+)*")

EXAMPLES: Final[dict[Point, str]] = {
    "configure": "epsilon-greedy",
    "select": "ageing",
    "place": "quiet-neighbours",
    "tune": "price-following",
    "replan": "patient",
    "retain": "fading",
}
"""Kind of the example of each decision point."""
PREEMPTIVE: Final[dict[Point, tuple[str, str]]] = {
    "select": ("select_preemptive", "shortest-remaining")
}
"""Name of the file and kind of the preemptive example of decision points that have one."""

PRICE: Final = (
    "'signals={price: {series: {mean: 0.3, amplitude: 0.1, period_s: 86400, slots: 24}, "
    "forecast: persistence}}'"
)

RUNS: Final[dict[Point, tuple[str, str, str]]] = {
    "configure": ("quickstart", "{policies: {configure: KIND, tune: zeus-jit}}", "baseline=zeus"),
    "select": ("quickstart", "{policies: {select: KIND}}", "cluster.gpus=1"),
    "place": ("quickstart", "{policies: {place: KIND}}", ""),
    "tune": ("quickstart", "{policies: {tune: KIND}}", PRICE),
    "replan": ("elastic-losses", "{policies: {replan: KIND}}", ""),
    "retain": (
        "zoo-bandits",
        "{policies: {configure: modelkeeper, retain: KIND}, zoo: {capacity_gb: 1.0e-4}}",
        "baseline=modelkeeper",
    ),
}
"""Scenario, variant and another setting with which the example of each decision point is compared
with other policies."""


def class_name(kind: str) -> str:
    """The name of a policy's class."""
    return "".join(word.capitalize() for word in kind.split("-"))


def read_example(name: str, suffix: str = "") -> str:
    """The text of an example, by the name of its file, or with `_test` that of its test."""
    path = files("wattkeeper.scenarios.policy_examples") / f"{name}{suffix}.py"
    return path.read_text(encoding="utf-8")


def list_next_steps(point: Point, kind: str, file: Path) -> tuple[str, str]:
    """The commands that check a new policy, and compare it with others."""
    name = shlex.quote(str(file))
    scenario, variant, setting = RUNS[point]
    mine = f"--set 'variants.mine={variant.replace('KIND', kind)}'"
    run = f"wattkeeper run {scenario} --policy {name} {mine}"
    return f"wattkeeper policy check {name}", f"{run} --set {setting}" if setting else run


def write_policy(
    point: Point, kind: str, folder: Path, preemptive: bool = False
) -> tuple[Path, Path]:
    """Write a file with a policy of this kind, and one with its test; begin with an example.

    Raises:
        InputError: If the kind is no name, is taken, or a file is there already; or no policy of
            the decision point preempts.
    """
    if preemptive and point not in PREEMPTIVE:
        raise InputError(
            f"--preemptive: only {', '.join(PREEMPTIVE)} policies preempt, not {point}"
        )
    if not NAME.fullmatch(kind):
        raise InputError(
            f"found {kind!r}; a name has small letters and digits, and '-' between them, as "
            "`my-policy`"
        )
    if find_part(point, kind) is not None:
        raise InputError(f"there is a {point} policy {kind!r} already: choose another name")
    stem = kind.replace("-", "_")
    if iskeyword(stem) or stem in sys.stdlib_module_names:
        raise InputError(f"{kind!r} means something in Python: choose another name")
    source, example = PREEMPTIVE[point] if preemptive else (point, EXAMPLES[point])
    name = class_name(kind)
    if kind != example and re.search(rf"\b{name}(Config)?\b", read_example(source)):
        raise InputError(
            f"{kind!r} makes a class {name!r}, which the file has already: choose another name"
        )
    written = folder / f"{stem}.py", folder / f"test_{stem}.py"
    for path in written:
        if path.exists() or path.is_symlink():
            raise InputError("is there already: choose another name, or another folder", path)
    for path, suffix in zip(written, ("", "_test"), strict=True):
        text = read_example(source, suffix).replace(class_name(example), name)
        text = text.replace(f'"{example}"', f'"{kind}"').replace(f"`{example}`", f"`{kind}`")
        text = text.replace(f'"{source}.py"', f'"{stem}.py"').replace("FILE`", f"{path.name}`")
        path.write_text(text, encoding="utf-8")
    return written

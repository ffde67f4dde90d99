"""Altered scenario files and settings: `validate` and `run` accept them, or say what is wrong."""

from __future__ import annotations

import os
import traceback
from collections import Counter
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.scenarios.test_damage import CODES, Hung, limited
from tests.support.damage import ODD_VALUES
from tests.support.scenario_files import GOOD
from wattkeeper.scenarios.cli.main import main
from wattkeeper.scenarios.spec.loading import find_scenario, shipped

MOST = 200
"""Largest number in a scenario that is run: larger ones may take long."""

TEXTS = [
    "{",
    "[",
    ":",
    "- ",
    "\t",
    "&a ",
    "*a",
    "!!python/object:os.system ",
    "'",
    '"',
    "|",
    "%",
    "#",
    "\0",
    "\x85",
    "\ufeff",
    "~",
    "1e999",
    "0x10",
    "2026-01-01",
    "yes",
    "<<: ",
    "? ",
    "\U0001f600",
    "[" * 2000,
    "a: " * 50,
]
"""Pieces with a meaning in YAML."""

WORDS = [
    *ODD_VALUES,
    "fifo",
    "zeus",
    "1..5",
    "5..1",
    "10GB",
    "inf",
    "V100",
    3,
    0.5,
    2**63,
    ["x"],
    {"kind": "fifo"},
    {"kind": "nothing"},
    {"": ""},
    [1, [2]],
]

Place = tuple[Any, Any]
"""A container, and a key or an index in it."""


def places(content: Any) -> list[Place]:
    """Every value below the root."""
    if not isinstance(content, dict | list):
        return []
    items = list(content.items() if isinstance(content, dict) else enumerate(content))
    return [(content, key) for key, _ in items] + [
        below for _, value in items for below in places(value)
    ]


def alter_tree(content: Any, rng: Random) -> Any:
    """Change one to three values, keys or entries."""
    content = deepcopy(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        known = places(content)
        if not known:
            break
        holder, key = rng.choice(known)
        kind = rng.choice(("value", "removed", "added", "other", "scaled", "number", "number"))
        if kind == "removed":
            del holder[key]
        elif kind == "added" and isinstance(holder, dict):
            holder[rng.choice(("x", "kind", "gpus", 1, "seeds", "cluster"))] = rng.choice(WORDS)
        elif kind == "other":
            other, other_key = rng.choice(known)
            holder[key] = deepcopy(other.get(other_key) if isinstance(other, dict) else None)
        elif kind == "scaled" and isinstance(holder[key], int | float):
            holder[key] *= rng.choice((-1, 0, 0.5, 2, 1e-9))
        elif kind == "number" and isinstance(holder[key], int | float):
            holder[key] = rng.choice((0, 1, 2, 3, 7, 30, 200, 0.1, 0.5, 0.9, 1.5, 250.0))
        else:
            holder[key] = rng.choice(WORDS)
    return content


def alter_text(text: str, rng: Random) -> str:
    """Insert, remove or repeat some characters."""
    begin, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    end = min(end, begin + 40)
    kind = rng.choice(("inserted", "inserted", "removed", "repeated", "cut"))
    if kind == "inserted":
        return text[:begin] + rng.choice(TEXTS) + text[begin:]
    if kind == "removed":
        return text[:begin] + text[end:]
    if kind == "repeated":
        return text[:end] + text[begin:end] * rng.choice((1, 5)) + text[end:]
    return text[:begin]


def setting(content: Any, rng: Random) -> str:
    """A setting of a path, that may not be there, to a value."""
    path = []
    while isinstance(content, dict) and content and rng.random() < 0.8:
        path.append(str(rng.choice(list(content))))
        content = content.get(path[-1])
    if rng.random() < 0.2:
        path.append(rng.choice(("x", "", "0", "kind", "..", "a" * 3000)))
    value = rng.choice(WORDS)
    text = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True)
    return f"{'.'.join(path)}{rng.choice(('=', '=', '=', '', '=='))}{text.strip()}"


def is_small(content: Any) -> bool:
    """Whether a run of a scenario with these values is quick."""
    if isinstance(content, dict | list):
        values = content.values() if isinstance(content, dict) else content
        return all(is_small(value) for value in values)
    return not isinstance(content, int | float) or abs(content) <= MOST


def ask(*words: str) -> tuple[int, str]:
    with limited():
        result = CliRunner().invoke(main, [*words])
    message = result.stderr
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        message += "".join(traceback.format_exception(result.exception))
    return result.exit_code, message


def fault(code: int, message: str) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if "Traceback" in message:
        return "traceback"
    if code not in CODES or (code and not message.strip()):
        return f"exit code {code}"
    return "long message" if len(message) > 10_000 else ""


def storm(folder: Path, seed: int, count: int) -> list[str]:
    """Ask about many scenarios; the faults found, with what to repeat them."""
    texts = {name: find_scenario(name).read_text(encoding="utf-8") for name in shipped()}
    valid = [name for name in texts if ask("validate", name)[0] == 0]  # others need traces
    texts["good"] = GOOD
    faults, codes = [], Counter[str]()
    for number in range(count):
        rng = Random(f"{seed} {number}")
        name = rng.choice(("good", rng.choice(valid), rng.choice(list(texts))))
        text = texts[name]
        tree: Any = yaml.safe_load(text)
        settings: list[str] = []
        kind = rng.choice(("tree", "tree", "text", "setting"))
        if kind == "tree":
            tree = alter_tree(tree, rng)
            text = yaml.dump(tree, allow_unicode=rng.random() < 0.5)
        elif kind == "text":
            text = alter_text(text, rng)
        else:
            settings = [setting(tree, rng) for _ in range(rng.choice((1, 1, 2)))]
        path = folder / "altered.yaml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        options = [word for one in settings for word in ("--set", one)]
        commands = [("validate", str(path), *options)]
        if kind == "tree" and name == "good" and is_small(tree):
            commands.append(("run", str(path), "--out", str(folder / "out")))
        for command in commands:
            try:
                code, message = ask(*command)
            except Hung:
                code, message = -1, "hung"
            codes[f"{command[0]} {code}"] += 1
            if wrong := fault(code, message):
                lines = message.strip().splitlines() or [""]
                (folder / f"fault-{number}.yaml").write_bytes(path.read_bytes())
                faults.append(
                    f"{seed} {number}: {name}, {kind} {settings}: {command[0]}: {wrong}: "
                    f"{lines[-1][:300]}"
                )
    print(
        f"scenarios, seed {seed}: {count} altered, {dict(sorted(codes.items()))}, "
        f"{len(faults)} faults"
    )
    return faults


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    monkeypatch.setenv("WATTKEEPER_STATE", str(tmp_path / "state"))
    return tmp_path


def test_altered_scenarios(place: Path) -> None:
    assert storm(place, 1, 80) == []


@pytest.mark.slow
def test_storm_of_altered_scenarios(place: Path) -> None:
    """`WATTKEEPER_FUZZ_SCENARIOS` is the seed and the number of scenarios."""
    seed, count = map(int, os.environ.get("WATTKEEPER_FUZZ_SCENARIOS", "17 4000").split())
    assert storm(place, seed, count) == []

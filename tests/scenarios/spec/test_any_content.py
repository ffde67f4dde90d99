"""Whatever a file or a setting holds, it is a scenario or a refusal that says why."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.scenario_files import GOOD, changed
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.spec.loading import load


def survives(file: Path, content: bytes, overrides: Iterable[str] = ()) -> None:
    file.write_bytes(content)
    try:
        loaded = load(str(file), tuple(overrides))
    except InputError as error:
        problems = error.problems
    else:
        assert loaded.scenario.all_seeds[:1]
        return
    assert problems
    for problem in problems:
        assert problem.message
        assert problem.where.startswith((str(file), "--set "))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "fuzz.yaml"


# Numbers stay small: what is too large to run has a test in test_schema.py.
TOKENS = [
    *("[", "]", "{", "}", ": ", ", ", "- ", "\n", "\n  ", "\n    ", "? ", "|\n", ">-\n", "# x\n"),
    *("&a ", "*a", "&b ", "*b", "<<: ", "!!binary ", "!!bool ", "!!int ", "!!float ", "!!null "),
    *("!!timestamp ", "!!set ", "!!omap ", "!!python/name:os.system ", "!x ", "!!str ", "! "),
    *("name", "cluster", "variants", "seeds", "policies", "kind", "zeus", "''", '"', "'", "\t"),
    *("1", "-0", "1e400", ".nan", "-.inf", "0x1", "1_0", "yes", "~", "2020-01-01", "=", "\\"),
    *("---\n", "...\n", "%YAML 1.1\n", "é", "\u2028", "\ufeff", "\x85", "\0", "@", "`"),
]
SIMPLE = st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(
    sorted({*re.findall(r"[a-z_]+(?=:)", GOOD), "kind", "baseline", "occupancy", "synthetic"})
)
DATA = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
FUZZ = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


@FUZZ
@given(st.text(max_size=80))
def test_any_text(file: Path, text: str) -> None:
    survives(file, text.encode("utf-8", "surrogatepass"))


@FUZZ
@given(st.binary(max_size=60))
def test_any_bytes(file: Path, content: bytes) -> None:
    survives(file, content)
    survives(file, GOOD.encode() + b"x: " + content)


@FUZZ
@given(st.lists(st.sampled_from(TOKENS), max_size=12).map("".join))
def test_any_yaml(file: Path, text: str) -> None:
    survives(file, text.encode())
    survives(file, changed("Does it work?", text).encode())
    survives(file, GOOD.replace("{}", text).encode())


@FUZZ
@given(st.dictionaries(KEYS, DATA, max_size=6), KEYS, DATA)
def test_any_structure(file: Path, root: dict[str, Any], key: str, data: Any) -> None:
    survives(file, json.dumps(root).encode())
    survives(file, yaml.safe_dump(root, allow_unicode=True).encode("utf-8", "surrogatepass"))
    good = yaml.safe_load(GOOD)
    for mapping in (good, good["cluster"], good["workload"], good["variants"]["zeus"]):
        if key in mapping:
            mapping[key] = data
    survives(file, json.dumps(good).encode())


@FUZZ
@given(st.data())
def test_any_changed_line(file: Path, data: st.DataObject) -> None:
    lines = GOOD.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        line = data.draw(st.sampled_from([*lines, "", " x", "- x"]))
        lines[at : at + 1] = data.draw(st.sampled_from([[], [line], [lines[at]] * 2, [line] * 2]))
        if not lines:
            break
    survives(file, "\n".join(lines).encode())


@FUZZ
@given(st.data())
def test_any_changed_character(file: Path, data: st.DataObject) -> None:
    text = GOOD
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        new = data.draw(st.sampled_from(["", text[at] * 2, *"\t\n :-[]{}&*!|>'\"%@`#,?é\0"]))
        text = text[:at] + new + text[at + 1 :]
    survives(file, text.encode())


PATHS = st.lists(
    KEYS | st.sampled_from(["0", "-1", "x", "", "default", "zeus", "configure", "tune"]), max_size=5
).map(".".join)


@FUZZ
@given(
    st.lists(
        st.text(max_size=20)
        | st.builds("{}={}".format, PATHS, st.text(max_size=10))
        | st.builds(
            "{}={}".format, PATHS, st.lists(st.sampled_from(TOKENS), max_size=5).map("".join)
        )
        | st.builds("{}={}".format, PATHS, DATA.map(json.dumps)),
        max_size=3,
    )
)
def test_any_setting(file: Path, overrides: list[str]) -> None:
    survives(file, GOOD.encode(), overrides)

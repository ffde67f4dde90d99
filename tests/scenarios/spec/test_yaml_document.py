"""Scenario files as YAML: forms of values, encodings, tags, nesting, and files that are none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.scenario_files import GOOD, Refuse, accepted, changed, check
from wattkeeper.policies.errors import InputError, ScenarioError
from wattkeeper.scenarios.spec.loading import load
from wattkeeper.scenarios.spec.sections.cluster import UniformCluster
from wattkeeper.scenarios.spec.yaml_document import MAX_BYTES, MAX_DEPTH


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ("Does it work?", "!!binary aGVsbG8=", "2:11", "binary"),
        ("Does it work?", "!!set ''", "2:11", "set"),
        ("Does it work?", "!!int ''", "2:11", "int"),
        ("Does it work?", "!!bool maybe", "2:11", "bool"),
        ("seeds: 2", "seeds: &a [*a]", "20", ""),
        ("objective: {eta: 0.5}", "objective: &a {eta: *a}", "12", ""),
    ],
    ids=["binary", "set", "empty int", "bool", "a list in itself", "a mapping in itself"],
)
def test_odd_yaml_is_refused(refuse: Refuse, old: str, new: str, at: str, words: str) -> None:
    check(refuse(changed(old, new)), (at, words))


@pytest.mark.parametrize("tag", ["!mine", "!!python/tuple", "!!python/object/apply:os.system"])
def test_unknown_tags_are_refused(refuse: Refuse, tag: str) -> None:
    check(refuse(changed("seeds: 2", f"seeds: {tag} [1, 2]")), ("20:8", tag.lstrip("!")))


@pytest.mark.parametrize("number", ["010", "1:20"])
def test_numbers_that_mean_another_number_in_old_yaml(refuse: Refuse, number: str) -> None:
    """YAML 1.1 reads 010 as eight and 1:20 as eighty, not as the number that is written."""
    check(refuse(changed("gpus: 4", f"gpus: {number}")), ("5:9", "gpus"))


def test_octal_of_new_yaml_is_no_other_number(refuse: Refuse) -> None:
    check(refuse(changed("gpus: 4", "gpus: 0o10")), ("5:9", "gpus|0o10|integer"))


def test_a_number_too_long_to_read_is_shown_short(refuse: Refuse) -> None:
    problems = refuse(changed("gpus: 4", f"gpus: 1{'0' * 5000}"))
    check(problems, ("5:9", "cannot read|int"))
    assert len(problems[0][1]) < 200


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing\n"])
def test_an_empty_file(refuse: Refuse, content: str) -> None:
    problems = refuse(content)
    assert problems
    assert all(re.fullmatch(r"\d+:\d+", where) for where, _ in problems)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("hello", "found the text 'hello'|mapping"),
        ("- a\n- b", "found a list|mapping"),
        ("~", "found nothing|mapping"),
        ("5", "found 5|mapping"),
    ],
)
def test_the_root_is_a_mapping(refuse: Refuse, content: str, words: str) -> None:
    check(refuse(content), ("1:1", words))


def test_not_utf8_names_the_line(refuse: Refuse) -> None:
    check(refuse(GOOD.replace("Does it", "Tut\xe4t es").encode("latin-1")), ("2", "UTF-8"))


def test_utf16_is_not_utf8(path: Path) -> None:
    path.write_bytes(GOOD.encode("utf-16"))
    with pytest.raises(ScenarioError, match=r"mine\.yaml.*not UTF-8"):
        load(str(path))


@pytest.mark.parametrize("character", ["\0", "\x01", "\x7f", "\x1b"])
def test_control_characters_name_the_line(refuse: Refuse, character: str) -> None:
    check(refuse(changed("it work", f"it{character}work")), ("2", "not YAML"))


def test_a_lone_surrogate(refuse: Refuse) -> None:
    problems = refuse(changed("Does it work?", '"\\ud800"'))
    check(problems, ("2:11", "surrogate"))


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory; name a scenario file"):
        load(str(tmp_path))


@pytest.mark.parametrize("name", ["nope", "nope.yaml", "a\0b", "no/such/folder.yaml"])
def test_a_missing_file(name: str) -> None:
    with pytest.raises(InputError, match=r"neither a file nor.*quickstart") as caught:
        load(name)
    assert repr(name) in str(caught.value)


def test_a_name_too_long_for_a_file() -> None:
    with pytest.raises(InputError):
        load("x" * 5000)


def test_no_file_but_a_device() -> None:
    with pytest.raises(InputError, match="/dev/null"):
        load("/dev/null")


def test_a_huge_file(path: Path) -> None:
    path.write_text(GOOD + "# " + "x" * MAX_BYTES)
    with pytest.raises(ScenarioError, match=rf"mine\.yaml: .*{MAX_BYTES}"):
        load(str(path))


def test_deep_nesting(refuse: Refuse) -> None:
    words = f"nested more than {MAX_DEPTH} deep"
    for count in (MAX_DEPTH, 100_000):
        check(refuse(f"{GOOD}x: {'[' * count}{']' * count}"), (f"21:{MAX_DEPTH + 3}", words))
    check(refuse(f"{GOOD}x: {'{a: ' * 200}"), ("21", words))
    blocks = "".join(f"{' ' * depth}a:\n" for depth in range(1, 300))
    check(refuse(f"{GOOD}x:\n{blocks}"), (f"{21 + MAX_DEPTH}", words))


def test_aliases_do_not_nest_deeper(refuse: Refuse) -> None:
    """Each anchor is within the limit, and holds the one before it."""
    lines = ["a0: &a0 x"]
    for n in range(1, 100):
        lines.append(f"a{n}: &a{n} {'[' * 25}*a{n - 1}{']' * 25}")
    problems = refuse("\n".join(lines))
    assert all(re.fullmatch(r"\d+:\d+", where) for where, _ in problems[:1])


def test_a_bomb_of_aliases(refuse: Refuse) -> None:
    lines = [f"a: &a [{', '.join('x' * 9)}]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    ((where, message),) = refuse("\n".join(lines))
    assert re.fullmatch(r"\d+:\d+", where)
    assert "more than 100000 values, aliases counted" in message


def test_values_that_yaml_writes_in_many_ways(path: Path) -> None:
    eta = {
        "1e-3": 0.001,
        "1E-3": 0.001,
        ".5": 0.5,
        "1.": 1.0,
        "+0.5": 0.5,
        "5.0e-1": 0.5,
        "0": 0.0,
        "1": 1.0,
    }
    for text, value in eta.items():
        assert accepted(path, changed("eta: 0.5", f"eta: {text}")).objective.eta == value
    cluster = accepted(path, changed("_power_w: 40", "_power_w: 1e3")).cluster
    assert isinstance(cluster, UniformCluster)
    assert cluster.idle_power_w == 1000.0


def test_words_stay_words(path: Path) -> None:
    """Dates, truth values and numbers are names where names are asked for."""
    for word in ("2020-01-01", "2020-01-01T00:00:00Z", "nan", "1.2.3"):
        assert accepted(path, changed("Does it work?", word)).question == word
    for key in ("5", "yes", "~", "2020-01-01", "1e3", "é"):
        text = changed("default: {}", f"default: {{}}\n  {key}: {{}}")
        assert list(accepted(path, text).variants) == ["default", key, "zeus"]


def test_anchors_and_aliases(path: Path) -> None:
    text = changed("  default: {}", "  default: &d {objective: {eta: 0.25}}\n  one: *d\n  two: *d")
    scenario = accepted(path, text, "variants.one.objective.eta=1")
    etas = {name: v.objective and v.objective.eta for name, v in scenario.variants.items()}
    assert etas == {"default": 0.25, "one": 1.0, "two": 0.25, "zeus": None}


def test_other_encodings_of_lines(path: Path) -> None:
    for content in (GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD, GOOD + "...\n", "---\n" + GOOD):
        path.write_bytes(content.encode())
        cluster = load(str(path)).scenario.cluster
        assert isinstance(cluster, UniformCluster)
        assert cluster.gpus == 4

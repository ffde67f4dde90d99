"""Scenario files: what is wrong is named with its line, what was found and what is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.errors import InputError, ScenarioError
from wattkeeper.policies.registry import policies
from wattkeeper.scenarios.cli.main import main
from wattkeeper.scenarios.spec.loading import load, shipped
from wattkeeper.scenarios.spec.schema import Scenario, UniformCluster, json_schema
from wattkeeper.scenarios.spec.variants import DEFAULTS
from wattkeeper.scenarios.spec.yaml_document import MAX_BYTES, MAX_DEPTH

GOOD = """\
name: mine
question: Does it work?
cluster:
  gpu: SYN-250W
  gpus: 4
  gpus_per_node: 2
  idle_power_w: 40
workload:
  kind: recurring
  profiles: {synthetic: {}}
  recurrences: 3
objective: {eta: 0.5}
variants:
  default: {}
  zeus:
    policies:
      configure: {kind: zeus, beta: 2}
      tune: zeus-jit
baseline: default
seeds: 2
"""

Refuse = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


@pytest.fixture
def refuse(path: Path) -> Refuse:
    """Loads a bad scenario; gives place (line:column, or the --set) and message of each problem."""

    def problems(content: str | bytes, *overrides: str) -> list[tuple[str, str]]:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(ScenarioError) as caught:
            load(str(path), overrides)
        found = []
        for problem in caught.value.problems:
            assert "\n" not in problem.message
            found.append((problem.where.removeprefix(f"{path}:"), problem.message))
        return found

    return problems


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} stands {GOOD.count(old)} times in the scenario"
    return GOOD.replace(old, new)


def accepted(path: Path, content: str, *overrides: str) -> Scenario:
    path.write_text(content, encoding="utf-8")
    return load(str(path), overrides).scenario


def check(problems: Sequence[tuple[str, str]], *expected: tuple[str, str]) -> None:
    """Each expectation is a place, `line:column` or `line` alone, and words separated by `|`."""
    assert len(problems) == len(expected), problems
    for (where, message), (at, words) in zip(problems, expected, strict=True):
        assert re.fullmatch(r"\d+:\d+", where), f"no line and column: {where}: {message}"
        assert at in (where, where.partition(":")[0]), f"{where}, not {at}: {message}"
        assert_states(message, *words.split("|"))


def test_the_base_of_all_tests_is_good(path: Path) -> None:
    scenario = accepted(path, GOOD)
    assert scenario.all_seeds == (1, 2)
    assert list(scenario.variants) == ["default", "zeus"]


@pytest.mark.parametrize("name", sorted(shipped()))
def test_shipped_scenarios_load(name: str) -> None:
    scenario, document = load(name)
    assert scenario.name == name
    assert scenario.question.endswith("?")
    assert document.name == str(shipped()[name])


def test_a_policy_takes_a_list(path: Path) -> None:
    found = accepted(path, GOOD, "policies.select={kind: dlas-gpu, limits_gpu_s: [60, 600]}")
    assert getattr(found.policies.select, "limits_gpu_s", None) == (60, 600)


def test_there_are_shipped_scenarios() -> None:
    assert set(shipped()) >= {"quickstart", "zeus-nsdi23", "zeus-eta", "zeus-overlap"}


WRONG = [
    # Unknown and missing keys.
    ("objective: {eta", "objectiv: {eta", "12", "'objectiv'|did you mean 'objective'|baseline"),
    ("  gpus: 4", "  gpus: 4\n  idle: 3", "6", "'idle'|allowed here: busy_power_w, gpu, gpus"),
    ("beta: 2}", "betta: 2}", "17", "'betta'|did you mean 'beta'|kind, overlapping, window"),
    ("default: {}", "default: {polcies: {}}", "14", "'polcies'|did you mean 'policies'|profiling"),
    ("  gpu: SYN-250W\n", "", "4:3", "'gpu' is missing"),
    ("baseline: default\n", "", "1:1", "'baseline' is missing"),
    ("kind: zeus, ", "", "17:18", "configure|'kind'"),
    ("  kind: recurring\n", "", "9:3", "workload|'kind'"),
    # Wrong types.
    ("gpus: 4", "gpus: four", "5:9", "gpus|found the text 'four'|integer"),
    ("gpus: 4", 'gpus: "4"', "5:9", "gpus|found the text '4'|integer"),
    ("idle_power_w: 40", "idle_power_w: '40'", "7:17", "found the text '40'|number"),
    ("beta: 2}", "beta: '2'}", "17:37", "beta|found the text '2'|number"),
    ("gpus: 4", "gpus: 4.5", "5:9", "gpus|found 4.5|integer"),
    ("gpus: 4", "gpus: yes", "5:9", "gpus|integer"),
    ("eta: 0.5", "eta: on", "12:18", "eta|number"),
    ("gpus: 4", "gpus: [4]", "5:9", "gpus|found a list|integer"),
    ("gpus: 4", "gpus: {}", "5:9", "gpus|found a mapping|integer"),
    ("gpus: 4", "gpus:", "5:8", "gpus|found nothing|integer"),
    ("gpus: 4", "gpus: 2020-01-01", "5:9", "gpus|found the text '2020-01-01'|integer"),
    ("question: Does it work?", "question: 5", "2:11", "question|found 5|text"),
    ("name: mine", "name: a/b", "1:7", "name|found the text 'a/b'|A-Za-z0-9"),
    ("name: mine", "name: ''", "1:7", "name|found the text ''|A-Za-z0-9"),
    ("  default: {}", "  default:", "14:11", "default|found nothing"),
    ("tune: zeus-jit", "tune: [zeus-jit]", "18:13", "tune|found a list"),
    # Numbers out of range.
    ("idle_power_w: 40", "idle_power_w: -40", "7:17", "found -40|greater than or equal to 0"),
    ("idle_power_w: 40", "idle_power_w: .nan", "7:17", "found nan|finite"),
    ("idle_power_w: 40", "idle_power_w: .inf", "7:17", "found inf|finite"),
    ("idle_power_w: 40", "idle_power_w: -.inf", "7:17", "found -inf|finite"),
    ("idle_power_w: 40", "idle_power_w: 1e400", "7:17", "found inf|finite"),
    ("idle_power_w: 40", f"idle_power_w: {10**500}", "7:17", ""),
    ("beta: 2}", "beta: .nan}", "17:37", "beta|found nan|finite"),
    ("beta: 2}", "beta: 0}", "17:37", "beta|found 0|greater than 0"),
    ("eta: 0.5", "eta: 2", "12:18", "eta|found 2|less than or equal to 1"),
    ("gpus: 4", "gpus: 0", "5:9", "gpus|found 0|greater than 0"),
    ("recurrences: 3", "recurrences: 0", "11:16", "recurrences|found 0|greater than 0"),
    ("recurrences: 3", "recurrences: {per_configuration: 0}", "11:36", "found 0|greater than 0"),
    ("seeds: 2", "seeds: 0", "20:8", "seeds|found 0|greater than 0"),
    ("seeds: 2", "seeds: -3", "20:8", "seeds|found -3|greater than 0"),
    ("seeds: 2", "seeds: []", "20:8", "seeds|found none|at least 1"),
    ("seeds: 2", "seeds: [1, -2]", "20:12", "seeds|found -2|greater than or equal to 0"),
    ("seeds: 2", "seeds: [1, a]", "20:12", "seeds|found the text 'a'|integer"),
    # Names of things that are not there.
    ("tune: zeus-jit", "tune: zeus-jitt", "18:13", "tune|'zeus-jitt'|max-power|zeus-jit"),
    ("kind: zeus,", "kind: zeuss,", "17:18", "configure|'zeuss'|fixed|grid-search|oracle"),
    ("kind: recurring", "kind: recurrin", "9:3", "workload|'recurrin'|'recurring', 'trace'"),
    ("baseline: default", "baseline: defalt", "19:11", "baseline|'defalt'|default, zeus"),
    ("seeds: 2", "seeds: 2\noccupancy: recordd", "21:12", "'recordd'|'simulated' or 'recorded'"),
    ("seeds: 2", "seeds: 2\noccupancy: recorded", "1:1", "recorded|kind trace"),
    ("gpus: 4", "gpus: 5", "4:3", "5 GPUs|nodes of 2"),
    # YAML itself.
    ("seeds: 2", "seeds: 2\nseeds: 3", "21:1", "'seeds'|twice"),
    ("  gpus: 4", "  gpus: 4\n  gpus: 5", "6:3", "'gpus'|twice"),
    ("  kind: recurring", "\tkind: recurring", "9:1", "not YAML|'\\t'"),
    ("seeds: 2", "seeds: [1, 2", "21:1", "not YAML|']'"),
    ("eta: 0.5}", "eta: 0.5", "13:9", "not YAML|'}'"),
    ("objective: {eta: 0.5}", "objective: *nowhere", "12:12", "undefined alias 'nowhere'"),
    ("default: {}", "default: {}\n  ? [a]\n  : {}", "15:5", "a key must be a plain word"),
    ("objective: {eta: 0.5}", "objective: {<<: {eta: 0.5}}", "12", "'<<'|allowed here: eta"),
    ("seeds: 2", "seeds: 2\n---\nname: two", "21:1", "another document"),
    ("Does it work?", '"\\q"', "2:13", "not YAML|escape"),
    ("Does it work?", "!!python/object:os.system x", "2:11", "os.system"),
    ("Does it work?", "!!python/name:os.system", "2:11", "os.system"),
    ("Does it work?", "!!int x", "2:11", "'x'|int"),
    ("Does it work?", "!!float x", "2:11", "'x'|float"),
    ("Does it work?", "!!set {a}", "2:11", "question|tag|not allowed"),
]


@pytest.mark.parametrize(("old", "new", "at", "words"), WRONG, ids=[f"{w[1]:.40}" for w in WRONG])
def test_what_is_wrong_is_named(refuse: Refuse, old: str, new: str, at: str, words: str) -> None:
    check(refuse(changed(old, new)), (at, words))


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
    """YAML 1.1 reads 010 as eight and 1:20 as eighty, which nobody who writes them means."""
    check(refuse(changed("gpus: 4", f"gpus: {number}")), ("5:9", "gpus"))


def test_octal_of_new_yaml_is_no_other_number(refuse: Refuse) -> None:
    check(refuse(changed("gpus: 4", "gpus: 0o10")), ("5:9", "gpus|0o10|integer"))


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ("gpus: 4\n  gpus_per_node: 2", f"gpus: {10**500}", "5:9"),
        ("gpus: 4\n  gpus_per_node: 2", f"gpus: {10**12}", "5:9"),
        ("seeds: 2", f"seeds: [{2**64}]", "20:9"),
        ("seeds: 2", f"seeds: {10**12}", "20:8"),
        ("recurrences: 3", f"recurrences: {10**30}", "11:16"),
        ("idle_power_w: 40", "idle_power_w: 1e300", "7:17"),
    ],
    ids=["gpus 10**500", "gpus 10**12", "a seed", "many seeds", "recurrences", "idle watts"],
)
def test_numbers_too_large_to_run(refuse: Refuse, old: str, new: str, at: str) -> None:
    check(refuse(changed(old, new)), (at, ""))


def test_a_number_too_long_to_read_is_shown_short(refuse: Refuse) -> None:
    problems = refuse(changed("gpus: 4", f"gpus: 1{'0' * 5000}"))
    check(problems, ("5:9", "cannot read|int"))
    assert len(problems[0][1]) < 200


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ("objective: {eta: 0.5}", "objectiv:\n  eta: 0.5", "12:1"),
        ("  gpus: 4", "  gpus: 4\n  extra:\n    - 1", "6:3"),
        ("    policies:\n", "    polices:\n", "16:5"),
    ],
)
def test_an_unknown_key_is_named_where_it_stands(
    refuse: Refuse, old: str, new: str, at: str
) -> None:
    """The key, not its value, which may stand on a later line."""
    check(refuse(changed(old, new)), (at, "unknown key"))


def test_a_wrong_baseline_of_a_variant(refuse: Refuse) -> None:
    text = changed("  zeus:\n", "  zeus:\n    baseline: nope\n")
    check(refuse(text), ("16", "'nope'|default, zeus"))


def test_a_seed_that_stands_twice(refuse: Refuse) -> None:
    """It would count as two observations."""
    check(refuse(changed("seeds: 2", "seeds: [1, 2, 1]")), ("20", "seeds|twice"))


def test_a_workload_that_stands_twice(refuse: Refuse) -> None:
    text = changed("  recurrences: 3", "  recurrences: 3\n  workloads: [image, image]")
    check(refuse(text), ("12", "workloads|twice"))


def test_each_mistake_is_reported_once(refuse: Refuse) -> None:
    """Where several forms are allowed, one problem says so."""
    for old, new, at in (
        ("seeds: 2", "seeds: two", "20:8"),
        ("recurrences: 3", "recurrences: many", "11:16"),
        ("profiles: {synthetic: {}}", "profiles: 5", "10:13"),
    ):
        problems = refuse(changed(old, new))
        assert [where for where, _ in problems] == [at], problems


def test_a_bad_element_does_not_make_a_list_empty(refuse: Refuse) -> None:
    text = changed("{synthetic: {}}", "{synthetic: {gpus: [{name: x}]}}")
    problems = refuse(text)
    keys = ("idle_power_w", "peak_power_w", "min_limit_w", "max_limit_w")
    check(problems, *(("10:33", f"{key!r}|missing") for key in keys))
    assert all("found none" not in message for _, message in problems), problems


def test_messages_speak_yaml(refuse: Refuse) -> None:
    """A file holds mappings and lists, not objects and arrays; truth values as they are written."""
    for old, new in (
        ("variants:\n  default: {}\n  zeus:\n", "variants:\n  zeus: 5\n  default:\n"),
        ("seeds: 2", "seeds: {}"),
    ):
        for _, message in refuse(changed(old, new)):
            assert not re.search(r"\b(object|array|dict|dictionary|tuple)\b", message), message


def test_all_problems_at_once_in_order_of_lines(refuse: Refuse) -> None:
    text = GOOD
    for old, new in (
        ("seeds: 2", "seeds: 0\nsedes: 1"),
        ("beta: 2", "beta: -1"),
        ("gpus: 4", "gpus: five"),
        ("idle_power_w: 40", "idle_power_w: -1"),
        ("eta: 0.5", "eta: 1.5"),
    ):
        text = text.replace(old, new)
    check(
        refuse(text),
        ("5:9", "gpus"),
        ("7:17", "idle_power_w"),
        ("12:18", "eta"),
        ("17:37", "beta"),
        ("20:8", "seeds"),
        ("21", "unknown key 'sedes'"),
    )


def test_many_problems_are_counted(refuse: Refuse, path: Path) -> None:
    text = GOOD + "".join(f"x{n}: 1\n" for n in range(50))
    problems = refuse(text)
    assert [where.partition(":")[0] for where, _ in problems] == [str(21 + n) for n in range(50)]
    with pytest.raises(ScenarioError) as caught:
        load(str(path))
    assert str(caught.value).splitlines()[-1] == "... and 30 more"


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


# What a scenario names must be there.


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ("gpu: SYN-250W", "gpu: V100", "4:8", "no profile on 1 x V100|1 x SYN-250W, 1 x SYN-400W"),
        (
            "{synthetic: {}}",
            "nowhere",
            "10:13",
            "no trace named 'nowhere'|nothing yet|wattkeeper traces import",
        ),
        (
            "  recurrences: 3",
            "  recurrences: 3\n  workloads: [image, nope]",
            "12",
            "no profile of workload 'nope'|image, language, recommendation",
        ),
        (
            "  recurrences: 3",
            "  recurrences: 3\n  gpus: 2",
            "",
            "no profile on 2 x SYN-250W|1 x SYN-250W",
        ),
    ],
)
def test_validate_looks_for_what_is_named(
    path: Path, old: str, new: str, at: str, words: str
) -> None:
    path.write_text(changed(old, new))
    env = {"WATTKEEPER_TRACES": str(path.parent / "library")}
    done = CliRunner().invoke(main, ["validate", str(path)], env=env)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{path}:{at}")
    assert re.match(r":\d+:\d+: ", done.stderr.removeprefix(str(path)))
    assert_states(done.stderr, *words.split("|"))


def test_validate_through_the_command(inside: Command, path: Path) -> None:
    path.write_text(GOOD)
    assert inside("validate", "mine.yaml").stdout == "mine.yaml: good; 2 variants, 4 runs\n"
    path.write_text(changed("gpus: 4", "gpus: four").replace("eta: 0.5", "eta: 7"))
    done = inside("validate", "mine.yaml", "--set", "seeds=none", code=2)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith("--set seeds=none: seeds: found the text 'none'")
    assert lines[-2].startswith("mine.yaml:5:9: gpus: found the text 'four'")
    assert lines[-1].startswith("mine.yaml:12:18: eta: found 7")


# --set


def value_at(scenario: Scenario, place: str) -> Any:
    found: Any = scenario.model_dump()
    for step in place.split("."):
        found = found[int(step)] if isinstance(found, list | tuple) else found[step]
    return found


@pytest.mark.parametrize(
    ("overrides", "place", "value"),
    [
        (["cluster.gpus=8"], "cluster.gpus", 8),
        (["objective.eta=1e-3"], "objective.eta", 0.001),
        (["objective.eta=0.25  # a remark"], "objective.eta", 0.25),
        (["variants.zeus.policies.configure.beta=3"], "variants.zeus.policies.configure.beta", 3.0),
        (["seeds=[4, 7]"], "seeds", (4, 7)),
        (["seeds=[4, 7]", "seeds.1=9"], "seeds", (4, 9)),
        (["workload.workloads=[image]"], "workload.workloads", ("image",)),
        (
            ["workload.recurrences={per_configuration: 2}"],
            "workload.recurrences",
            {"per_configuration": 2},
        ),
        (["policies.tune=max-power"], "policies.tune.kind", "max-power"),
        (["policies.tune.kind=max-power"], "policies.tune.kind", "max-power"),
        (
            ["variants.zeus.policies.tune.kind=max-power"],
            "variants.zeus.policies.tune",
            {"kind": "max-power"},
        ),
        (
            [
                "variants.zeus.policies.configure=fixed",
                "variants.zeus.policies.configure.batch_size=64",
            ],
            "variants.zeus.policies.configure",
            {"kind": "fixed", "batch_size": 64},
        ),
        (["variants.new={}"], "variants.new.baseline", None),
        (["cluster.gpus_per_node="], "cluster.gpus_per_node", None),
        (["question=a=b"], "question", "a=b"),
        (["question='5'"], "question", "5"),
        (["cluster.gpus=5", "cluster.gpus=6"], "cluster.gpus", 6),
        (["baseline=zeus"], "baseline", "zeus"),
    ],
    ids=str,
)
def test_set(path: Path, overrides: Sequence[str], place: str, value: object) -> None:
    assert value_at(accepted(path, GOOD, *overrides), place) == value


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("cluster.gpus=five", "gpus|found the text 'five'|integer"),
        ("cluster.gpus='5'", "gpus|found the text '5'|integer"),
        ("cluster.gpus=", "gpus|found nothing|integer"),
        ("question=", "question|found nothing|text"),
        ("cluster.idle_power_w=-1", "idle_power_w|found -1"),
        ("cluster.idle_power_w=.nan", "idle_power_w|found nan|finite"),
        ("cluster=4", "cluster|found 4"),
        ("foo=1", "unknown key 'foo'|allowed here: baseline"),
        ("cluster.gpus_per=1", "unknown key 'gpus_per'|did you mean 'gpus_per_node'"),
        ("variants.zeus.policies.tune.power_limit_w=5", "unknown key 'power_limit_w'|kind"),
        ("policies.configure.batch_size=5", "configure|'kind'"),
        ("policies.tune=nope", "tune|'nope'|max-power"),
        ("baseline=nope", "baseline|'nope'|default, zeus"),
        ("seeds.0=3", "seeds|is 2|no keys"),
        ("variants.zues.objective.eta=1", "no variant 'zues'|default, zeus"),
        ("cluster.gpus.x=1", "gpus|is 4|no keys"),
        ("cluster.gpus=[", "not YAML"),
        ("cluster.gpus={a", "not YAML"),
        ("question='x", "not YAML"),
        ("question=*a", "undefined alias 'a'"),
        ("question=@x", "not YAML"),
        ("question=a: b: c", "not YAML"),
        ("cluster.gpus", "write it as path.to.key=value"),
        ("=5", "write it as path.to.key=value"),
        ("", "write it as path.to.key=value"),
        ("a..b=1", "write it as path.to.key=value"),
        (".a=1", "write it as path.to.key=value"),
        ("a.=1", "write it as path.to.key=value"),
    ],
)
def test_a_bad_set_is_named(refuse: Refuse, override: str, words: str) -> None:
    problems = refuse(GOOD, override)
    assert len(problems) == 1, problems
    where, message = problems[0]
    assert where.startswith(f"--set {override}")
    assert_states(message, *words.split("|"))


@pytest.mark.parametrize(
    "override",
    [
        "name.x=1",
        "variants.zeus.baseline=nope",
        "cluster.gpus=5",
        "variants.zeus.policies.tune.kind=fixed-power",
        "objective.eta=0.5\nfoo: 1",
        "question=&a [*a]",
        "question=!!binary aGk=",
        "question=!!bool maybe",
        "question=!mine x",
        'question="\\ud800"',
        f"cluster.gpus={10**500}",
        f"{'a.' * 2000}b=1",
    ],
    ids=lambda override: override[:40].encode("unicode_escape").decode(),
)
def test_a_set_that_makes_the_scenario_wrong_is_named(refuse: Refuse, override: str) -> None:
    problems = refuse(GOOD, override)
    assert [where for where, _ in problems if where.startswith("--set ")], problems


@pytest.mark.parametrize("step", ["2", "-1", "x", "²", "99999999999999999999"])
def test_no_such_element(refuse: Refuse, step: str) -> None:
    text = changed("seeds: 2", "seeds: [1, 2]")
    where = f"--set seeds.{step}=5"
    ((place, message),) = refuse(text, where[6:])
    assert place == where
    assert_states(message, f"no element {step} ", "2")


def test_an_element_number_too_long_to_read(refuse: Refuse) -> None:
    ((where, message),) = refuse(changed("seeds: 2", "seeds: [1, 2]"), f"seeds.{'1' * 5000}=5")
    assert where.startswith("--set seeds.111")
    assert "no element" in message


def test_several_bad_sets_and_a_bad_file(refuse: Refuse) -> None:
    text = changed("seeds: 2", "seeds: 0")
    places = [where for where, _ in refuse(text, "cluster.gpus=five", "objective.eta=2")]
    assert places == ["--set cluster.gpus=five", "--set objective.eta=2", "20:8"]


def test_a_set_repairs_what_is_wrong_in_the_file(path: Path) -> None:
    cluster = accepted(path, changed("gpus: 4", "gpus: four"), "cluster.gpus=2").cluster
    assert isinstance(cluster, UniformCluster)
    assert cluster.gpus == 2


# The JSON schema, read by a small validator of just the words that it uses.

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda x: isinstance(x, dict),
    "array": lambda x: isinstance(x, list),
    "string": lambda x: isinstance(x, str),
    "boolean": lambda x: isinstance(x, bool),
    "null": lambda x: x is None,
    "integer": lambda x: isinstance(x, int) and not isinstance(x, bool),
    "number": lambda x: isinstance(x, int | float) and not isinstance(x, bool),
}
RULES: dict[str, Callable[[Any, Any], bool]] = {
    "type": lambda x, kind: TYPES[kind](x),
    "const": lambda x, value: bool(x == value),
    "enum": lambda x, values: x in values,
    "minimum": lambda x, least: not TYPES["number"](x) or x >= least,
    "maximum": lambda x, most: not TYPES["number"](x) or x <= most,
    "exclusiveMinimum": lambda x, least: not TYPES["number"](x) or x > least,
    "exclusiveMaximum": lambda x, most: not TYPES["number"](x) or x < most,
    "minLength": lambda x, least: not isinstance(x, str) or len(x) >= least,
    "maxLength": lambda x, most: not isinstance(x, str) or len(x) <= most,
    "maxItems": lambda x, most: not isinstance(x, list) or len(x) <= most,
    "pattern": lambda x, regex: not isinstance(x, str) or re.search(regex, x) is not None,
    "minItems": lambda x, least: not isinstance(x, list) or len(x) >= least,
    "uniqueItems": lambda x, _: not isinstance(x, list) or len({str(i) for i in x}) == len(x),
    "minProperties": lambda x, least: not isinstance(x, dict) or len(x) >= least,
    "required": lambda x, keys: not isinstance(x, dict) or set(keys) <= set(x),
}
REMARKS = {"$schema", "$defs", "title", "description", "default", "discriminator", "examples"}


def fits(value: Any, schema: Any, root: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    return all(_fits_word(value, word, rule, schema, root) for word, rule in schema.items())


def _fits_word(value: Any, word: str, rule: Any, schema: Any, root: Any) -> bool:
    if word in REMARKS:
        return True
    if word in RULES:
        return RULES[word](value, rule)
    if word == "$ref":
        return fits(value, root["$defs"][rule.removeprefix("#/$defs/")], root)
    if word in ("anyOf", "oneOf", "allOf"):
        count = sum(fits(value, choice, root) for choice in rule)
        return {"anyOf": count > 0, "oneOf": count == 1, "allOf": count == len(rule)}[word]
    if word == "items":
        return not isinstance(value, list) or all(fits(item, rule, root) for item in value)
    if word == "properties":
        return not isinstance(value, dict) or all(
            fits(value[key], inner, root) for key, inner in rule.items() if key in value
        )
    if word == "additionalProperties":
        known = schema.get("properties", {})
        return not isinstance(value, dict) or all(
            fits(inner, rule, root) for key, inner in value.items() if key not in known
        )
    raise AssertionError(f"the JSON schema uses the word {word!r}, which this test does not know")


def test_json_schema_fits_all_shipped_scenarios(inside: Command) -> None:
    root = json.loads(inside("schema").stdout)
    assert root == json_schema()
    assert root["$schema"].startswith("https://json-schema.org/")
    for name, file in shipped().items():
        assert fits(yaml.safe_load(file.read_text(encoding="utf-8")), root, root), name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("objective: {eta", "objectiv: {eta"),
        ("beta: 2}", "betta: 2}"),
        ("  gpu: SYN-250W\n", ""),
        ("baseline: default\n", ""),
        ("gpus: 4", "gpus: four"),
        ("gpus: 4", 'gpus: "4"'),
        ("gpus: 4", "gpus: 0"),
        ("idle_power_w: 40", "idle_power_w: -40"),
        ("eta: 0.5", "eta: 2"),
        ("seeds: 2", "seeds: 0"),
        ("seeds: 2", "seeds: []"),
        ("tune: zeus-jit", "tune: zeus-jitt"),
        ("kind: zeus,", "kind: zeuss,"),
        ("kind: zeus, ", ""),
        ("kind: recurring", "kind: recurrin"),
        ("  kind: recurring\n", ""),
        ("name: mine", "name: a/b"),
        ("  default: {}", "  default:"),
        ("seeds: 2", "seeds: 2\noccupancy: recordd"),
        ("tune: zeus-jit", "tune: {kind: fixed-power}"),
    ],
)
def test_json_schema_refuses_what_the_command_refuses(refuse: Refuse, old: str, new: str) -> None:
    root = json_schema()
    assert fits(yaml.safe_load(GOOD), root, root)
    assert refuse(changed(old, new))
    assert not fits(yaml.safe_load(changed(old, new)), root, root)


def test_json_schema_documents_everything() -> None:
    root = json_schema()
    for name, model in {"Scenario": root, **root["$defs"]}.items():
        if "properties" not in model:
            continue
        assert model.get("description"), f"{name} is not described"
        assert model["additionalProperties"] is False, name
    for name in ("UniformCluster", "RecurringWorkload", "TraceWorkload", "Variant"):
        for key, inner in root["$defs"][name]["properties"].items():
            if key not in ("kind", "policies", "objective", "occupancy", "profiling"):
                assert inner.get("description"), f"{name}.{key} is not described"
    names = json.dumps(root)
    for point in DEFAULTS:
        for kind in policies(point):
            assert f'"{kind}"' in names

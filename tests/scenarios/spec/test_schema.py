"""Scenario files: what is wrong is named with its line, what was found and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.scenario_files import GOOD, Refuse, accepted, changed, check
from wattkeeper.policies.errors import ScenarioError
from wattkeeper.scenarios.cli.main import main
from wattkeeper.scenarios.spec.loading import load, shipped


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
    (
        "  gpus: 4",
        "  gpus: 4\n  idle: 3",
        "6",
        "'idle'|allowed here: busy_power_w, energy_of, gpu, gpu_model, gpus",
    ),
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
    ("kind: zeus,", "kind: zeuss,", "17:25", "configure|'zeuss'|fixed|grid-search|oracle"),
    ("kind: recurring", "kind: recurrin", "9:9", "workload|'recurrin'|'recurring', 'trace'"),
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


def test_a_variant_with_the_name_of_a_case(refuse: Refuse) -> None:
    """Else its results would be shown as those of a case of the other variant."""
    text = changed("  zeus:\n", "  zeus (low): {boundness: high}\n  zeus:\n")
    check(refuse(text), ("15", "'zeus (low)'|boundness: low"))


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


def test_validate_refuses_policies_that_no_live_run_can_ask(
    inside: Command, tmp_path: Path
) -> None:
    training = {
        "command": ["python", "train.py"],
        "batch_sizes": [32],
        "default_batch_size": 32,
        "max_epochs": 3,
    }
    scenario = {
        "name": "live-only",
        "cluster": {"gpu": "V100", "gpus": 1, "idle_power_w": 40},
        "workload": {"kind": "recurring", "recurrences": 2},
        "live": {"workloads": {"cnn": training}},
        "variants": {"known": {"policies": {"configure": "oracle"}}},
        "baseline": "known",
    }
    (tmp_path / "live.yaml").write_text(yaml.safe_dump(scenario), encoding="utf-8")
    assert_states(
        inside("validate", "live.yaml", code=2).stderr, "'known'", "foresight", "a live run"
    )
    inside("validate", "live.yaml", "--set", "variants.known.policies.configure=zeus")

"""Settings of `--set` override a scenario; a bad one is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states, drop_signs_of_life
from tests.support.scenario_files import GOOD, Refuse, accepted, changed, check
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.sections.cluster import UniformCluster


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
        ("foo=1", "unknown key 'foo'|allowed here: accounting"),
        ("cluster.gpus_per=1", "unknown key 'gpus_per'|did you mean 'gpus_per_node'"),
        ("variants.zeus.policies.tune.power_limit_w=5", "unknown key 'power_limit_w'|kind"),
        ("policies.configure.batch_size=5", "configure|'kind'"),
        ("policies.tune=nope", "tune|'nope'|max-power"),
        ("policies.tune=zeus", "tune|found 'zeus' (did you mean 'zeus-jit'?); allowed"),
        ("policies.select={kind: lsa}", "select|found 'lsa' (did you mean 'las'?); allowed"),
        ("variants.zeus.policies.configure.kind=zues", "configure|(did you mean 'zeus'?)"),
        ("workload.kind=recuring", "workload|found 'recuring' (did you mean 'recurring'?)"),
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


OVERRIDING = """\
name: mine
cluster: {gpu: SYN-250W, gpus: 4, gpus_per_node: 2, idle_power_w: 40, sleep: {after_s: 9, power_w: 5, wake_s: 1}}
workload: {kind: recurring, profiles: {synthetic: {}}, recurrences: 3}
objective: {eta: 0.5}
variants:
  a: {policies: {select: fjf}, objective: {eta: 1}, workload: {recurrences: 2}}
  b: {policies: {select: fifo}, objective: {eta: 0}, cluster: {gpus: 2, sleep: {after_s: 8}}}
baseline: a
"""  # noqa: E501


@pytest.mark.parametrize(
    ("before", "setting"),
    [
        ([], "policies.select=las"),
        ([], "policies.select={kind: las}"),
        ([], "policies={select: las}"),
        ([], "objective.eta=0.1"),
        ([], "objective={eta: 0.1}"),
        (["variants.b.workload.recurrences=1"], "workload.recurrences={per_configuration: 2}"),
        (["variants.a.cluster.gpus=8"], "cluster.gpus=2"),
        (["variants.a.cluster.sleep=null"], "cluster.sleep.after_s=1"),
        (
            ["variants.a.cluster.sleep=null", "variants.b.cluster.sleep=null"],
            "cluster.sleep={after_s: 1, power_w: 1, wake_s: 1}",
        ),
    ],
    ids=str,
)
def test_a_setting_that_every_variant_overrides_is_refused(
    inside: Command, tmp_path: Path, before: list[str], setting: str
) -> None:
    (tmp_path / "mine.yaml").write_text(OVERRIDING)
    sets = [word for one in (*before, setting) for word in ("--set", one)]
    for command in ("run", "validate"):
        said = inside(command, "mine.yaml", *sets, code=2).stderr
        path = setting.partition("=")[0]
        assert_states(said, f"--set {setting}: {path}", "a, b", f"--set variants.a.{path}=")
    assert not (tmp_path / "results").exists()


def test_an_axis_that_every_variant_overrides_is_refused(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OVERRIDING)
    said = inside("run", "mine.yaml", "--sweep", "policies.select=las,fifo", code=2).stderr
    assert said.count("\n") == 1
    assert_states(said, "--sweep policies.select=las,fifo: ", "a, b", "variants.a.policies.select")
    (tmp_path / "mine.yaml").write_text(OVERRIDING + "sweep: {objective.eta: [0.1, 0.2]}\n")
    said = inside("validate", "mine.yaml", code=2).stderr
    assert_states(said, "mine.yaml:9:25: objective.eta", "mine.yaml:9:30", "variants.a.objective")


@pytest.mark.parametrize(
    ("option", "setting", "names"),
    [
        ("--set", "cluster.gpus=6", "b"),
        ("--set", "cluster.sleep.after_s=6", "b"),
        ("--set", "workload.recurrences=4", "a"),
        ("--sweep", "workload.recurrences=4,5", "a"),
    ],
)
def test_variants_that_a_setting_does_not_reach_are_named(
    inside: Command, tmp_path: Path, option: str, setting: str, names: str
) -> None:
    (tmp_path / "mine.yaml").write_text(OVERRIDING)
    path = setting.partition("=")[0]
    for command in ("validate", "run"):
        said = drop_signs_of_life(inside(command, "mine.yaml", option, setting).stderr)
        assert said.count("\n") == 1
        assert_states(said, f"{option} {setting}", f" {names}:", f"variants.{names}.{path}")


@pytest.mark.parametrize(
    "setting",
    [
        "cluster.sleep.power_w=6",
        "cluster.sleep={after_s: 6, power_w: 6, wake_s: 1}",
        "policies.place=best-fit",
        "policies={select: las, place: best-fit}",
        "variants.a.policies.select=las",
        "question=What?",
    ],
)
def test_nothing_is_said_of_a_setting_that_reaches_all_variants(
    inside: Command, tmp_path: Path, setting: str
) -> None:
    (tmp_path / "mine.yaml").write_text(OVERRIDING)
    assert not inside("validate", "mine.yaml", "--set", setting).stderr


def test_keys_of_a_form_that_the_clusters_of_all_variants_leave(
    inside: Command, tmp_path: Path
) -> None:
    mixed = "{nodes: [{gpu: SYN-250W, count: 1, gpus: 2}], power: {SYN-250W: {idle_w: 40}}}"
    text = changed("  default: {}", f"  default: {{cluster: {mixed}}}")
    (tmp_path / "mine.yaml").write_text(text.replace("  zeus:", f"  zeus:\n    cluster: {mixed}"))
    said = inside("validate", "mine.yaml", "--set", "cluster.gpus=8", code=2).stderr
    assert_states(said, "cluster.gpus", "default, zeus")
    assert not inside("validate", "mine.yaml", "--set", "cluster.pue=1.2").stderr


def test_null_removes_a_variant(inside: Command, tmp_path: Path) -> None:
    few = ("--set", "workload.recurrences=2", "--seeds", "1")
    gone = ("--set", "variants.oracle=null", "--set", "variants.zeus=")
    inside("run", "quickstart", *few, *gone, "--out", "results")
    manifest = json.loads((tmp_path / "results/manifest.json").read_text())
    assert list(manifest["scenario"]["variants"]) == ["default", "frugal"]


def test_a_removed_variant_can_be_stated_anew(path: Path) -> None:
    sets = ("variants.zeus=null", "variants.zeus={objective: {eta: 1}}")
    variant = accepted(path, GOOD, *sets).variants["zeus"]
    assert variant.policies.configure is None


def test_null_in_the_file_is_no_variant(refuse: Refuse) -> None:
    check(refuse(changed("  default: {}", "  default:")), ("14:11", "default|found nothing"))


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        (("variants.zues=null",), "variants.zues=null: no variant 'zues'|default, zeus"),
        (("variants.default=null",), "variants.default=null: |default is the baseline|zeus"),
        (("variants.zeus=null", "variants.default=null"), "variants: found none"),
        (("variants.zeus=null", "variants.zeus.baseline=zeus"), "no variant 'zeus'"),
    ],
    ids=str,
)
def test_a_variant_that_cannot_be_removed(
    inside: Command, tmp_path: Path, settings: tuple[str, ...], facts: str
) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD)
    sets = [word for one in settings for word in ("--set", one)]
    said = inside("validate", "mine.yaml", *sets, code=2).stderr
    assert said.count("\n") == 1
    assert_states(said, "--set ", *facts.split("|"))


def test_another_baseline_takes_the_place_of_a_removed_one(path: Path) -> None:
    settings = ("variants.default=null", "baseline=zeus")
    assert list(accepted(path, GOOD, *settings).variants) == ["zeus"]


def test_no_point_of_a_sweep_lacks_a_variant(inside: Command) -> None:
    axis = "variants.zeus=null,{}"
    said = inside("validate", "quickstart", "--sweep", axis, code=2).stderr
    assert_states(said, f"--sweep {axis}", "--set variants.zeus=null")

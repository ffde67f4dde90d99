"""The commands `wattkeeper zoo ...`."""

from __future__ import annotations

import csv
import gzip
import json
import math
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from tests.conftest import Command
from tests.support.messages import assert_states, drop_signs_of_life
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.matching.graph import Graph, Node, Tensor
from wattkeeper.policies.matching.matchers import find_matcher
from wattkeeper.scenarios.cli.main import main
from wattkeeper.scenarios.zoo.inputs import capacity_bytes

ABOUT = ("--task", "images", "--dataset", "digits", "--accuracy", "0.9")

SAVED = ("--graph", "net.json", "--weights", "net.safetensors")

MODELS = """
from torch import nn


def net(width, depth=1):
    layers = [nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def small():
    return net(8)


def wide():
    return net(12)


def deep():
    return net(8, 2)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x):
        return self.out(self.words(x))


def broken():
    raise RuntimeError("no such layer")


def weight(model):
    return model[0].weight.sum().item()


def lightness(model):
    return -weight(model)


def unsure(model):
    return float("nan")
"""


def graph(*widths: int) -> Graph:
    """Linear layers of those widths, the first one of the input."""
    return Graph(
        "mlp",
        tuple(
            Node("linear", (n - 1,), (Tensor(f"{n}.weight", "weight", (after, before)),))
            for n, (before, after) in enumerate(pairwise(widths))
        ),
    )


def save(folder: Path, name: str, *widths: int, seed: int = 0) -> tuple[str, ...]:
    """Write a graph and weights; the options that name them."""
    model, rng = graph(*widths), np.random.default_rng(seed)
    (folder / f"{name}.json").write_text(model.to_json())
    tensors = [tensor for node in model.nodes for tensor in node.tensors]
    save_file(
        {one.name: rng.normal(size=one.shape).astype("f4") for one in tensors},
        folder / f"{name}.safetensors",
    )
    return ("--graph", f"{name}.json", "--weights", f"{name}.safetensors")


def test_add_list_match_and_gc(inside: Command, tmp_path: Path) -> None:
    near, far = save(tmp_path, "near", 4, 8, 3), save(tmp_path, "far", 5, 5)
    said = inside("zoo", "add", "--zoo", "z", *far, *ABOUT, "--name", "old").stdout
    assert said == "model 1: old, in z\n"
    inside("zoo", "add", "--zoo", "z", *near, *ABOUT, "--parent", "1")
    listed = json.loads(inside("zoo", "list", "--zoo", "z", "--json").stdout)
    assert [(row["name"], row["parent"], row["uses"]) for row in listed] == [
        ("old", None, 0),
        ("near", 1, 0),
    ]
    shown = inside("zoo", "list", "--zoo", "z").stdout
    assert_states(shown, "near", "unbounded", "by modelkeeper")

    save(tmp_path, "child", 4, 8, 8, 3)
    for matcher in ("coverage", "modelkeeper-asbuilt"):
        asked = ("zoo", "match", "--zoo", "z", "--child", "child.json", "--matcher", matcher)
        ranked = json.loads(inside(*asked, "--json").stdout)
        by = find_matcher(matcher)
        child = by.arrays(graph(4, 8, 8, 3))
        scores = {
            2: by.score(by.arrays(graph(4, 8, 3)), child),
            1: by.score(by.arrays(graph(5, 5)), child),
        }
        assert [row["model_id"] for row in ranked] == [2, 1]
        for row in ranked:
            assert row["score"] == scores[row["model_id"]]
            assert row["score_over_own"] == row["score"] / by.own(child)
        again = inside(*asked).stdout  # from the arrays that the first one kept
        assert f"{scores[2]:.4g}" in again

    stray = tmp_path / "z/tensors" / ("0" * 64 + ".safetensors")
    stray.write_bytes(b"1234")
    assert inside("zoo", "gc", "--zoo", "z").stdout == "removed 1 files, 4 bytes\n"
    assert not stray.exists()
    freed = json.loads(inside("zoo", "gc", "--zoo", "z", "--json").stdout)
    assert freed == {"files": 0, "bytes": 0}


def test_capacity(inside: Command, tmp_path: Path) -> None:
    first, second = save(tmp_path, "a", 16, 16), save(tmp_path, "b", 16, 16, seed=1)
    huge = save(tmp_path, "huge", 100, 100)
    bounded = ("--capacity", "1.5 kB", "--retain", "lru")
    inside("zoo", "add", "--zoo", "z", *first, *ABOUT, *bounded)
    said = inside("zoo", "add", "--zoo", "z", *second, *ABOUT).stdout
    assert said == "Evicted: model 1\nmodel 2: b, in z\n"
    refused = inside("zoo", "add", "--zoo", "z", *huge, *ABOUT, code=1)
    assert refused.stdout == ""
    assert_states(refused.stderr, "huge ", "40")
    told = inside("zoo", "add", "--zoo", "z", *huge, *ABOUT, "--json", code=1).stdout
    assert json.loads(told)["model_id"] is None
    assert_states(inside("zoo", "list", "--zoo", "z").stdout, "of 1.5 kB", "by lru")
    assert len(list((tmp_path / "z/tensors").iterdir())) == 1


def test_wrong_input(inside: Command, tmp_path: Path) -> None:
    good = save(tmp_path, "good", 4, 3)
    save(tmp_path, "other", 4, 2)
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04" + bytes(50))
    add = ("zoo", "add", "--zoo", "z")
    for arguments, facts in (
        (
            (*add, "--graph", "good.json", "--weights", "other.safetensors", *ABOUT),
            "other.safetensors: |'0.weight'|[2, 4]|[3, 4]",
        ),
        (
            (*add, "--graph", "good.json", "--weights", "model.pt", *ABOUT),
            "model.pt: |no safetensors file|torch.save",
        ),
        ((*add, "--graph", "good.json", "--weights", "none", *ABOUT), "none: cannot be read"),
        ((*add, "--graph", "none.json", "--weights", "good.safetensors", *ABOUT), "none.json"),
        ((*add, "--weights", "good.safetensors", *ABOUT), "--graph FILE|--module"),
        ((*add, *good, *ABOUT, "--capacity", "much"), "'much'|allowed"),
        ((*add, *good, *ABOUT, "--retain", "best"), "retain policy 'best'|gdsf"),
        ((*add, *good, *ABOUT, "--parent", "7"), "model 7 | z"),
        (("zoo", "list", "--zoo", "nowhere"), "no zoo |nowhere"),
        (("zoo", "scores", "--graphs", ".", "--child", "x", "--out", "s.csv"), " x|good"),
    ):
        said = inside(*arguments, code=2)
        assert_states(said.stderr, *facts.split("|"))
        assert said.stdout == ""
    assert not (tmp_path / "nowhere").exists()
    inside(*add, *good, *ABOUT)
    match = ("zoo", "match", "--zoo", "z", "--child", "good.json", "--matcher", "best")
    assert_states(inside(*match, code=2).stderr, "'best'", "coverage")


@pytest.mark.parametrize(
    ("text", "size"), [("10GB", 10**10), ("1.5 kB", 1500), ("2MiB", 2**21), ("700", 700), ("1b", 1)]
)
def test_capacities(text: str, size: int) -> None:
    assert capacity_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "0", "-1GB", "1e9", "10 XB", "1,5GB", "0.1 B"])
def test_no_capacities(text: str) -> None:
    with pytest.raises(InputError) as caught:
        capacity_bytes(text)
    assert_states(str(caught.value), repr(text), "allowed")


def read_scores(path: Path) -> dict[tuple[str, str], tuple[float, float]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["parent", "child", "score", "score_over_own"]
    found = {
        (row["parent"], row["child"]): (float(row["score"]), float(row["score_over_own"]))
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def test_scores_of_all_pairs(inside: Command, tmp_path: Path) -> None:
    folder = tmp_path / "graphs"
    folder.mkdir()
    shapes = {"a": (4, 8, 3), "b": (4, 8, 8, 3), "c": (5, 5)}
    for name, widths in shapes.items():
        (folder / f"{name}.json").write_text(graph(*widths).to_json())
    inside("zoo", "scores", "--graphs", folder, "--matcher", "coverage", "--out", "s.csv")
    found = read_scores(tmp_path / "s.csv")
    by = find_matcher("coverage")
    assert len(found) == 9
    for (parent, child), (score, over_own) in found.items():
        models = [by.arrays(graph(*shapes[name])) for name in (parent, child)]
        assert score == by.score(*models)
        assert over_own == score / by.own(models[1])
    assert found["a", "a"] == (1.0, 1.0)
    some = ("--child", "c", "--child", "a")
    by_coverage = ("--matcher", "coverage")
    inside("zoo", "scores", "--graphs", folder, *by_coverage, *some, "--out", "t.csv")
    assert read_scores(tmp_path / "t.csv") == {
        (parent, child): value for (parent, child), value in found.items() if child != "b"
    }


def test_published_scores(inside: Command, shared: Path, tmp_path: Path) -> None:
    graphs = shared / "data/modelkeeper/graphs"
    with gzip.open(shared / "reference/modelkeeper/scores.csv.gz", "rt") as file:
        published = [row for row in csv.DictReader(file) if row["child"] == "ResNet18"]
    by = ("--matcher", "modelkeeper-asbuilt", "--child", "ResNet18")
    inside("zoo", "scores", "--graphs", graphs, *by, "--out", "s.csv")
    found = read_scores(tmp_path / "s.csv")
    assert len(published) == len(found) > 100
    for row in published:
        score, over_own = found[row["parent"], "ResNet18"]
        assert math.isclose(score, float(row["score_raw"]), rel_tol=1e-9)
        assert math.isclose(over_own, float(row["score_over_child_self"]), rel_tol=1e-5)


@pytest.mark.parametrize(
    ("absent", "arguments", "says"),
    [
        ("numba", ("match", "--zoo", "z", "--child", "net.json"), "needs numba: pip install"),
        ("safetensors", ("add", "--zoo", "z", *ABOUT, *SAVED), "needs safetensors; install"),
        (
            "torch",
            ("warm-start", "--zoo", "z", "--child", "m:net", "--out", "o", "--parent", "1"),
            "need PyTorch: pip install",
        ),
    ],
)
def test_absent_libraries(
    absent: str,
    arguments: tuple[str, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path, "net", 8, 4)
    run = CliRunner()
    assert run.invoke(main, ["zoo", "add", "--zoo", "z", *ABOUT, *SAVED]).exit_code == 0
    for name in [one for one in sys.modules if one.endswith("_kernel")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, absent, None)
    done = run.invoke(main, ["zoo", *arguments])
    assert done.exit_code == 3
    assert says in done.stderr


# --- with the user's code


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """The command, in this process, in a folder with code and weights of small networks."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["zoo", *arguments])
        assert done.exit_code == code, done.output
        assert code or not drop_signs_of_life(done.stderr)
        return done.stderr if code else done.stdout

    (tmp_path / "my_models.py").write_text(MODELS)
    made: dict[str, Any] = {}
    exec(MODELS, made)
    for seed, name in enumerate(("small", "deep")):
        torch.manual_seed(seed)
        save_torch(made[name]().state_dict(), tmp_path / f"{name}.safetensors")
        weights = ("--weights", f"{name}.safetensors")
        run("add", "--zoo", "z", "--module", f"my_models:{name}", *weights, *ABOUT)
    yield run
    for name in ("my_models", "mine"):
        sys.modules.pop(name, None)


def test_warm_start(
    code: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from safetensors.torch import load_file

    asked = ("warm-start", "--zoo", "z", "--input", "1,1,8,8", "--out", "child.safetensors")
    digits = ("--task", "images", "--dataset", "digits")
    told = json.loads(code(*asked, "--child", "my_models:wide", *digits, "--json"))
    assert told["parent"]["name"] == "small"
    assert told["transfer"]["preserved_in_eval"]
    found = told["transfer"]["verification"]
    assert (found["found"], found["agrees"], found["precision"]) == ("all", True, "float64")
    assert 0 < found["difference"] < found["tolerance"]
    first = (tmp_path / "child.safetensors").read_bytes()
    code(*asked, "--child", "my_models:wide", "--parent", "1")
    assert (tmp_path / "child.safetensors").read_bytes() == first

    made: dict[str, Any] = {}
    exec(MODELS, made)
    parent, child = made["small"]().eval(), made["wide"]().eval()
    parent.load_state_dict(load_file(tmp_path / "small.safetensors"))
    child.load_state_dict(load_file(tmp_path / "child.safetensors"))
    images = torch.randn(5, 1, 8, 8)
    torch.testing.assert_close(child(images), parent(images))
    uses = [row["uses"] for row in json.loads(code("list", "--zoo", "z", "--json"))]
    assert uses == [2, 0]
    origin = ("--policy", "lineage", "--mutated-from", "deep")
    told = json.loads(code(*asked, "--child", "my_models:wide", *digits, *origin, "--json"))
    assert told["parent"]["name"] == "deep"
    lots = ("--policy", "random-parent", "--json")
    drawn = {code(*asked, "--child", "my_models:wide", *digits, *lots) for _ in range(2)}
    assert len(drawn) == 1, "the same command gives the same weights"
    match = ("match", "--zoo", "z", "--child", "my_models:deep")
    ranked = json.loads(code(*match, "--json"))
    assert [row["name"] for row in ranked] == ["deep", "small"]
    chosen = json.loads(code(*match, *digits, *origin[:3], "small", "--json"))
    assert {row["name"]: row["chosen"] for row in chosen} == {"small": True, "deep": False}
    assert {row["name"]: row["kept"] for row in ranked} == {"deep": "kept", "small": "kept"}
    savings = [row["expected_saving"] for row in ranked]
    assert 1 > savings[0] > savings[1] > 0
    shown = code(*match, *digits)
    assert_states(shown, "relative chooses model 2 (deep)", f"{100 * savings[1]:.0f} %")
    assert "modelkeeper chooses" in code(*match, *digits, "--policy", "modelkeeper")
    shown = code(*asked, "--child", "my_models:wide", *digits)
    assert_states(shown, "function in eval mode: preserved", "Filled: 100.0 %", "model 1 (small)")
    assert_states(shown, "outputs are equal", "in float64", "as the operators say")
    assert len(shown.splitlines()) == 7
    assert "lineage chooses no parent" in code(*match, *digits, *origin[:2])
    monkeypatch.setattr("wattkeeper.scenarios.cli.tables.zoo.MOST_ROWS", 1)
    shown = code(*match)
    assert " deep " in shown
    assert " small " not in shown
    assert "... and 1 more" in shown


def test_the_best_of_the_tried_parents_is_taken(code: Callable[..., str], tmp_path: Path) -> None:
    asked = ("warm-start", "--zoo", "z", "--input", "1,1,8,8", "--out", "child.safetensors")
    about = (*asked, "--child", "my_models:wide", "--task", "images", "--dataset", "digits")
    chosen = set()
    for measure in ("weight", "lightness"):
        trial = (*about, "--trials", "2", "--evaluate", f"my_models:{measure}")
        told = json.loads(code(*trial, "--json"))
        metrics = {row["model_id"]: row["metric"] for row in told["tried"]}
        assert list(metrics) == [1, 2], "small promises more than deep"
        assert told["parent"]["model_id"] == max(metrics, key=metrics.__getitem__)
        chosen.add(told["parent"]["model_id"])
        assert_states(code(*trial), "Tried: model 1 (small) ", ", model 2 (deep) ")
    assert chosen == {1, 2}
    uses = [row["uses"] for row in json.loads(code("list", "--zoo", "z", "--json"))]
    assert uses == [2, 2], "only the parent is used"

    written = (tmp_path / "child.safetensors").read_bytes()
    for words, *facts in (
        (("--trials", "2"), "relative has several parents tried", "give `evaluate`"),
        (("--evaluate", "my_models:weight"), "has no parents tried", "leave it out"),
        (("--trials", "0", "--evaluate", "my_models:weight"), "trials"),
        (("--trials", "2", "--policy", "lineage"), "lineage", "trials"),
        (("--trials", "2", "--evaluate", "my_models:none"), "my_models:none", "cannot be found"),
        (("--trials", "2", "--evaluate", "my_models:broken"), "my_models:broken", "failed"),
        (("--trials", "2", "--evaluate", "my_models:unsure"), "evaluate", "nan", "finite"),
        (("--trials", "2", "--evaluate", "weight"), "'weight'", "MODULE:CALLABLE"),
    ):
        assert_states(code(*about, *words, code=2), *facts)
    named = (*asked, "--child", "my_models:wide", "--parent", "1", "--trials", "2")
    assert_states(code(*named, code=2), "leave out --trials")
    assert (tmp_path / "child.safetensors").read_bytes() == written


def test_tied_weights_as_safetensors_saves_them(code: Callable[..., str], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_model

    made: dict[str, Any] = {}
    exec(MODELS, made)
    model = made["Tied"]()
    save_model(model, str(tmp_path / "tied.safetensors"))
    assert len(load_file(tmp_path / "tied.safetensors")) == 1
    words = ("--zoo", "words", "--input", "2,6")
    weights = ("--weights", "tied.safetensors")
    code("add", *words, "--module", "my_models:Tied", *weights, *ABOUT)
    code("warm-start", *words, "--child", "my_models:Tied", "--parent", "1", "--out", "o")
    for value in load_file(tmp_path / "o").values():
        assert value.equal(model.words.weight)


def test_match_of_an_onnx_file(code: Callable[..., str], tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, real, [1, 4]) for name in "xy"]
    weight = helper.make_tensor("w", real, (4, 4), [0.0] * 16)
    gemm = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    graph = helper.make_graph([gemm], "net", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph), str(tmp_path / "net.onnx"))
    ranked = json.loads(code("match", "--zoo", "z", "--child", "net.onnx", "--json"))
    assert {row["name"]: row["score"] for row in ranked} == {"small": 0.0, "deep": 0.0}
    (tmp_path / "bad.onnx").write_text("no model")
    message = code("match", "--zoo", "z", "--child", "bad.onnx", code=2)
    assert_states(message, "bad.onnx", "no ONNX model")


def test_warm_starts_that_are_refused(code: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from my_models import small\ntext = str\n")
    asked = ("warm-start", "--zoo", "z", "--out", "c.safetensors", "--task", "images")
    digits = (*asked, "--dataset", "digits")
    for arguments, facts in (
        ((*digits, "--child", "mine:small"), "model 1 (small)|--trust my_models"),
        ((*asked, "--child", "my_models:wide"), "no model|images|there is images on digits"),
        (
            (*digits, "--child", "my_models:wide", "--minimum", "2"),
            "none of 2 models|images on digits",
        ),
        ((*digits, "--child", "my_models:wide", "--policy", "zeus"), "zeus"),
        ((*digits, "--child", "my_models:wide", "--policy", "best"), "modelkeeper, |none, oracle"),
        (
            (*digits, "--child", "my_models:wide", "--policy", "lineage", "--minimum", "2"),
            "'lineage': minimum",
        ),
        ((*digits, "--child", "my_models:wide", "--out", "no/c"), "no folder no"),
        ((*digits, "--child", "my_models:broken"), "my_models:broken: |RuntimeError: no such"),
        ((*digits, "--child", "my_models:none"), "my_models:none: |AttributeError"),
        ((*digits, "--child", "elsewhere:net"), "elsewhere:net: |ModuleNotFoundError"),
        ((*digits, "--child", "mine:text"), "mine:text|str|a callable"),
        ((*digits, "--child", "my_models:wide", "--input", "big"), "'big'|--input"),
        ((*digits, "--child", "my_models:wide", "--parent", "1"), "--task"),
    ):
        assert_states(code(*arguments, code=2), *facts.split("|"))
    assert not (tmp_path / "c.safetensors").exists()
    code(*digits, "--child", "mine:small", "--trust", "my_models")
    assert (tmp_path / "c.safetensors").exists()

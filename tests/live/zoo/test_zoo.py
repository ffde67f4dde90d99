"""The zoo on disk: what is stored, what is refused, and who may be killed."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import zoo_kills
from tests.support.messages import assert_states
from tests.support.strangers import NOBODY, as_root, give_away
from wattkeeper.live.zoo.blobs import BlobStore
from wattkeeper.live.zoo.tensors import read_safetensors
from wattkeeper.live.zoo.zoo import Zoo
from wattkeeper.policies.errors import InputError, StoreError
from wattkeeper.policies.matching.graph import Graph, Node, Tensor

ROOT = Path(__file__).resolve().parents[3]
WEIGHT, BIAS, MEAN = "fc.weight", "fc.bias", "bn.running_mean"
GRAPH = Graph(
    "net",
    (
        Node("linear", (-1,), (Tensor(WEIGHT, "weight", (3, 2)), Tensor(BIAS, "bias", (3,)))),
        Node("batch_norm", (0,), (Tensor(MEAN, "running_mean", (3,), trained=False),)),
    ),
)
ABOUT: dict[str, Any] = {"task": "classify", "dataset": "digits", "accuracy": 0.9}


def state(seed: int = 0, **others: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {tensor.name: tensor.shape for node in GRAPH.nodes for tensor in node.tensors}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} | {
        name.replace("_", ".", 1): value for name, value in others.items()
    }


def safetensors(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def files(zoo: Zoo) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (zoo.path / "tensors").iterdir()}


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return found.keys() == expected.keys() and all(
        found[name].data == value.tobytes() and found[name].shape == value.shape
        for name, value in expected.items()
    )


@pytest.fixture
def zoo(tmp_path: Path) -> Zoo:
    return Zoo(tmp_path / "zoo")


# --- what is stored


def add(zoo: Zoo, tensors: dict[str, Any], **about: Any) -> int:
    """The number of a model that the zoo takes."""
    added = zoo.add(GRAPH, tensors, **{**ABOUT, **about})
    assert added.model_id is not None
    return added.model_id


def test_a_model_comes_back(zoo: Zoo) -> None:
    first = add(zoo, state(1), name="one")
    second = add(zoo, state(2), parent=first)
    again = Zoo(zoo.path)
    assert same(again.read(first), state(1))
    assert same(again.read(second), state(2))
    one, two = again.models()
    assert (one.name, one.task, one.dataset, one.accuracy) == ("one", "classify", "digits", 0.9)
    assert (two.name, two.parent, two.added, two.uses) == ("net", first, 2, 0)
    assert again.graph(first).nodes == GRAPH.nodes
    assert one.digest == GRAPH.digest
    again.note_use(first)
    assert again.models()[0]._replace(added=0) == one._replace(added=0, uses=1, used=3)
    assert again.check() == ()


def test_torch_states(zoo: Zoo) -> None:
    torch = pytest.importorskip("torch")
    from wattkeeper import live

    shapes = {tensor.name: tensor.shape for node in GRAPH.nodes for tensor in node.tensors}
    types = dict(zip(shapes, (torch.bfloat16, torch.float16, torch.int64), strict=True))
    given = {
        name: torch.arange(np.prod(shape)).reshape(shape).to(types[name])
        for name, shape in shapes.items()
    }
    given[WEIGHT] = torch.nn.Parameter(given[WEIGHT].t().contiguous().t(), requires_grad=True)
    found = live.Zoo(zoo.path).load(add(zoo, given))
    for name, tensor in given.items():
        assert found[name].dtype == types[name]
        assert torch.equal(found[name], tensor)
        found[name].zero_()  # it belongs to who asked for it
    assert torch.equal(zoo.load(1)[WEIGHT], given[WEIGHT])
    for wrong, message in (
        (torch.ones(3, dtype=torch.complex64), "the type torch.complex64"),
        (torch.ones(3).to_sparse(), "sparse"),
        (torch.ones(3, device="meta"), "holds no values"),
        ("text", "of the type str; allowed: tensors"),
    ):
        with pytest.raises(StoreError, match=message):
            zoo.add(GRAPH, {**given, BIAS: wrong}, **ABOUT)


def test_a_tensor_is_stored_once(zoo: Zoo) -> None:
    zoo.add(GRAPH, state(1), **ABOUT)
    before = files(zoo)
    changed = {**state(1), BIAS: state(2)[BIAS]}
    second = add(zoo, changed)
    assert len(files(zoo)) == len(before) + 1
    assert zoo.bytes == sum(files(zoo).values())
    zoo.remove(1)
    assert same(zoo.read(second), changed)
    assert len(files(zoo)) == 3
    zoo.remove(second)
    assert files(zoo) == {}
    assert zoo.bytes == 0


def test_equal_bytes_of_another_shape_or_type_are_another_tensor(zoo: Zoo) -> None:
    zeros = {WEIGHT: np.zeros((3, 2), "f4"), BIAS: np.zeros(3, "f4"), MEAN: np.zeros(3, "i4")}
    zoo.add(GRAPH, zeros, **ABOUT)
    assert len(files(zoo)) == 3
    assert same(zoo.read(1), zeros)


def test_eviction_frees_the_disk(tmp_path: Path) -> None:
    Zoo(tmp_path / "a").add(GRAPH, state(0), **ABOUT)
    size = Zoo(tmp_path / "a").bytes
    zoo = Zoo(tmp_path / "b", capacity_bytes=2 * size + 10, retain="lru")
    for seed in range(3):
        zoo.add(GRAPH, state(seed), **ABOUT)
        assert zoo.bytes == sum(files(zoo).values()) <= 2 * size + 10
    assert [model.model_id for model in zoo.models()] == [2, 3]
    zoo.note_use(2)
    shares = {**state(2), BIAS: state(9)[BIAS]}
    assert zoo.add(GRAPH, shares, **ABOUT).evicted == (3,)
    with pytest.raises(StoreError, match=r"model 3 is not in the zoo .*; there is 2, 4"):
        zoo.read(3)
    assert zoo.bytes == sum(files(zoo).values())
    assert zoo.check() == ()


def test_capacity_and_policy_stay_with_the_zoo(tmp_path: Path) -> None:
    Zoo(tmp_path, capacity_bytes=50, retain="keep-all")
    zoo = Zoo(tmp_path)
    assert zoo.capacity_bytes == 50
    refused = zoo.add(GRAPH, state(), **ABOUT)
    assert refused[:2] == (None, ())
    assert "214 bytes are missing" in refused.reason
    assert files(zoo) == {}
    assert zoo.models() == ()
    assert Zoo(tmp_path, capacity_bytes=5000).add(GRAPH, state(), **ABOUT).model_id == 1


def test_the_policy_keeps_its_state(tmp_path: Path) -> None:
    """By ModelKeeper, the model that was a parent outlives later ones, across openings."""
    Zoo(tmp_path).add(GRAPH, state(0), **ABOUT)
    size = Zoo(tmp_path).bytes
    Zoo(tmp_path, capacity_bytes=3 * size)
    for seed in (1, 2):
        Zoo(tmp_path).add(GRAPH, state(seed), **ABOUT)
    Zoo(tmp_path).note_use(1)
    evicted = [Zoo(tmp_path).add(GRAPH, state(seed), **ABOUT).evicted for seed in (3, 4)]
    assert evicted == [(2,), (3,)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": ""}, "a model needs a task"),
        ({"accuracy": float("nan")}, "a finite accuracy"),
        ({"parent": 1}, "no model 1 ever was"),
    ],
)
def test_attributes_of_a_model_are_checked(zoo: Zoo, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        zoo.add(GRAPH, state(), **{**ABOUT, **changes})
    assert files(zoo) == {}


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"retain policy 'best'.*gdsf, keep-all"):
        Zoo(tmp_path, retain="best")
    with pytest.raises(InputError, match="must be above 0"):
        Zoo(tmp_path, capacity_bytes=0)


def test_importing_live_loads_no_torch() -> None:
    code = "import sys, wattkeeper.live; wattkeeper.live.Zoo; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- what is refused


NAN, INF = np.array([1, np.nan, 2], "f4"), np.array([1, np.inf, -np.inf], "f4")
STATES = {
    "NaN": ({**state(), BIAS: NAN}, r"'fc.bias' holds 1 NaN and 0 infinite of 3 values"),
    "Inf": ({**state(), BIAS: INF}, r"'fc.bias' holds 0 NaN and 2 infinite of 3 values"),
    "half NaN": ({**state(), BIAS: NAN.astype("f2")}, "holds 1 NaN"),
    "shape": ({**state(), BIAS: np.ones(4, "f4")}, r"'fc.bias' has the shape \[4\]; .* is \[3\]"),
    "missing": (
        {WEIGHT: state()[WEIGHT], MEAN: NAN * 0 + 1},
        r"'fc.bias' of the graph, shape \[3\]",
    ),
    "unknown": ({**state(), "head": np.ones(2, "f4")}, "'head' is unknown to the graph"),
    "complex": ({**state(), BIAS: np.ones(3, "c8")}, "the type complex64; allowed: float64"),
    "text": ({**state(), BIAS: np.array(["a", "b", "c"])}, "the type <U1; allowed"),
    "nothing": ({}, "it holds no tensors"),
}


@pytest.mark.parametrize(("given", "message"), STATES.values(), ids=STATES)
def test_a_wrong_state_is_refused(zoo: Zoo, given: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        zoo.add(GRAPH, given, **ABOUT)
    assert zoo.models() == ()
    assert files(zoo) == {}


def test_all_faults_of_a_state_are_reported_at_once(zoo: Zoo) -> None:
    with pytest.raises(StoreError) as caught:
        zoo.add(GRAPH, {BIAS: NAN, WEIGHT: np.ones((2, 2), "f4"), "x": np.ones(1)}, **ABOUT)
    assert len(caught.value.problems) == 4


def test_values_of_bfloat16_are_checked(tmp_path: Path) -> None:
    about = {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}
    bits = np.array([0x3F80, 0x7FC0, 0x7F80, 0xFF80], "<u2")  # 1, NaN, inf, -inf
    (tmp_path / "m.safetensors").write_bytes(safetensors({"a": about}, bits.tobytes()))
    assert read_safetensors(tmp_path / "m.safetensors")["a"].count_not_finite() == (1, 2)


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
TWICE = b'{"a":%b,"a":%b}' % ((json.dumps(ONE).encode(),) * 2)
CHECKPOINTS: dict[str, tuple[bytes, str]] = {
    "empty file": (b"", r"no sound safetensors file \(empty\)"),
    "no header": (safetensors(b"not JSON"), "invalid JSON in header"),
    "header beyond the file": ((1 << 40).to_bytes(8, "little") + b"{}", "header too large"),
    "offsets beyond the file": (
        safetensors({"a": {**ONE, "data_offsets": [0, 4000], "shape": [1000]}}, b"1234"),
        "no sound safetensors file",
    ),
    "size unlike its shape": (safetensors({"a": {**ONE, "shape": [2]}}, b"1234"), "invalid shape"),
    "cut off": (safetensors({"a": ONE}, b"12"), "cut off"),
    "something at the end": (safetensors({"a": ONE}, b"123456"), "no sound safetensors file"),
    "a name twice": (safetensors(TWICE, b"1234"), "describes tensor 'a' more than once"),
    "unknown type": (safetensors({"a": {**ONE, "dtype": "F33"}}, b"1234"), "unknown variant `F33`"),
    "complex type": (
        safetensors({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, b"12345678"),
        "has the type C64; allowed: float64",
    ),
    "pickle": (pickle.dumps({"a": 1}, protocol=4), "never does that. Convert it"),
    "torch.save": (b"PK\x03\x04" + bytes(100), "safetensors.torch"),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(100), "no sound safetensors file"),
}


@pytest.mark.parametrize(("content", "message"), CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=message) as caught:
        read_safetensors(path)
    assert {problem.where for problem in caught.value.problems} == {str(path)}


def test_a_sound_file_may_begin_like_a_pickle(tmp_path: Path) -> None:
    header = json.dumps({"a": ONE}).encode().ljust(0x0280)
    (tmp_path / "m").write_bytes(safetensors(header, b"1234"))
    assert (tmp_path / "m").read_bytes().startswith(b"\x80\x02")
    assert read_safetensors(tmp_path / "m")["a"].data == b"1234"


def flip_a_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip_a_bit, "its content has not the hash in its name"),
        (lambda content: content[:-2], "no sound safetensors file"),
        (lambda content: b"", r"\(empty\)"),
        (lambda content: content.replace(b"[3]", b"[1]"), "no sound safetensors file"),
        (lambda content: content.replace(b"F32", b"I32"), "has not the hash in its name"),
        (None, "missing, though model 1 has it"),
    ],
)
def test_a_damaged_tensor_of_the_zoo_is_refused(
    zoo: Zoo, damage: Callable[[bytes], bytes] | None, message: str
) -> None:
    zoo.add(GRAPH, state(1), **ABOUT)
    zoo.add(GRAPH, {**state(2), BIAS: np.ones(3, "f8")}, **ABOUT)
    only_one = state(1)[BIAS].tobytes()
    (path,) = (p for p in (zoo.path / "tensors").iterdir() if only_one in p.read_bytes())
    content = path.read_bytes()
    path.write_bytes(damage(content)) if damage else path.unlink()
    assert not path.exists() or path.read_bytes() != content
    with pytest.raises(StoreError, match=message) as caught:
        zoo.read(1)
    assert caught.value.problems[0].where == str(path)
    assert [p.message.partition(":")[0] for p in zoo.check()] == ["model 1 (net)"]
    assert zoo.read(2), "the others are not concerned"
    zoo.remove(1)
    assert zoo.check() == ()
    assert same(zoo.read(add(zoo, state(1))), state(1))


def change(index: Path, statement: str) -> None:
    with sqlite3.connect(index) as db:
        db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda index: index.write_bytes(b""), "it is empty; restore it"),
        (lambda index: index.write_bytes(b"no database" * 500), "file is not a database"),
        (lambda index: index.write_bytes(index.read_bytes()[:5000]), "malformed"),
        (lambda index: change(index, "PRAGMA user_version = 7"), "its format is 7, this"),
        (lambda index: change(index, "PRAGMA application_id = 7"), "but not of a zoo"),
        (lambda index: change(index, "DROP TABLE leases"), "damaged: no such table: leases"),
        (lambda index: change(index, "UPDATE graphs SET graph = '[]'"), "of model 1 is another"),
        (
            lambda index: change(index, "UPDATE settings SET value = 'x'"),
            "damaged: the row of the setting",
        ),
        (lambda index: index.unlink(), "no zoo: index.sqlite is not there"),
    ],
)
def test_a_wrong_index_is_refused(zoo: Zoo, damage: Callable[[Path], Any], message: str) -> None:
    zoo.add(GRAPH, state(), **ABOUT)
    kept = files(zoo)
    damage(zoo.path / "index.sqlite")
    with pytest.raises(StoreError, match=message) as caught:
        Zoo(zoo.path).graph(1)
    assert str(zoo.path) in caught.value.problems[0].where
    assert files(zoo) == kept


def test_a_link_and_a_relative_path_stay_what_they_are(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(zoo.path)
    monkeypatch.chdir(tmp_path)
    linked = Zoo("link")
    monkeypatch.chdir("/")
    assert same(linked.read(add(linked, state())), state())
    zoo.path.rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="not there"):
        Zoo(tmp_path / "link")
    assert same(Zoo(tmp_path / "moved").read(1), state())


@as_root
@pytest.mark.parametrize("what", ["the folder", "a link to it"])
def test_a_zoo_of_another_user_is_refused(zoo: Zoo, tmp_path: Path, what: str) -> None:
    path = zoo.path
    if what == "the folder":
        os.chown(path, NOBODY, NOBODY)
    else:
        path = tmp_path / "link"
        path.symlink_to(zoo.path)
        give_away(path)
    with pytest.raises(StoreError) as caught:
        Zoo(path)
    assert_states(str(caught.value), str(path), f"user {NOBODY}")


def test_a_zoo_that_others_may_write_is_refused(zoo: Zoo) -> None:
    zoo.path.chmod(0o775)
    with pytest.raises(StoreError) as caught:
        Zoo(zoo.path)
    assert_states(str(caught.value), str(zoo.path), "(mode 0775)", "chmod go-w")


def test_only_its_owner_may_write_the_folders_of_a_zoo(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = Zoo(tmp_path / "open")
        add(made, state())
    finally:
        os.umask(before)
    folders = [path for path in (made.path, *made.path.iterdir()) if path.is_dir()]
    assert {f"{path.stat().st_mode & 0o777:o}" for path in folders} == {"755"}
    Zoo(made.path)


def test_folders_without_a_zoo_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"thesis\.tex"):
        Zoo(tmp_path)
    with pytest.raises(StoreError, match="a file"):
        Zoo(tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


# --- several processes, and their end


def test_a_removal_leaves_the_tensors_of_a_concurrent_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a model is added, the one that it shares all tensors with goes, and all is swept."""
    adding, other = Zoo(tmp_path), Zoo(tmp_path)
    adding.add(GRAPH, state(1), **ABOUT)
    settle = BlobStore.settle

    def meanwhile(files: BlobStore) -> None:
        settle(files)
        other.remove(1)
        assert other.gc() == (0, 0)
        Zoo(tmp_path)

    monkeypatch.setattr(BlobStore, "settle", meanwhile)
    number = add(adding, state(1))
    assert same(other.read(number), state(1))
    assert other.bytes == sum(files(other).values()) > 0
    assert other.check() == ()


def test_an_add_that_fails_leaves_nothing(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(files: BlobStore) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(BlobStore, "settle", full)
    with pytest.raises(OSError, match="No space"):
        zoo.add(GRAPH, state(1), **ABOUT)
    assert files(zoo) == {}
    assert list((zoo.path / "incoming").iterdir()) == []
    assert zoo.models() == ()


def test_a_model_that_is_evicted_while_it_is_read(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo.add(GRAPH, state(1), **ABOUT)
    read = BlobStore.read

    def meanwhile(files: BlobStore, digest: str) -> Any:
        if Zoo(zoo.path).models():
            Zoo(zoo.path).remove(1)
        return read(files, digest)

    monkeypatch.setattr(BlobStore, "read", meanwhile)
    with pytest.raises(StoreError, match=r"model 1 is not in the zoo .* \(any more\)"):
        zoo.read(1)


def test_two_processes_add_the_same_tensors(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom tests.support.zoo_kills import GRAPH, Zoo, state\n"
        "zoo = Zoo(sys.argv[1])\n"
        "for n in range(10): zoo.add(GRAPH, state(f'{n}'), task='t', accuracy=0.9, name=f'{n}')"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "zoo")]
    both = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    zoo = Zoo(tmp_path / "zoo")
    assert len(zoo.models()) == 20
    for model in zoo.models():
        assert same(zoo.read(model.model_id), zoo_kills.state(model.name))
    assert len(files(zoo)) == 10 * (zoo_kills.LAYERS - 1) + 3
    assert zoo.bytes == sum(files(zoo).values())
    assert zoo.check() == ()


def run_kills(folder: Path, bounded: bool, kills: int, seed: int) -> Zoo:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.zoo_kills",
            *map(str, (folder, int(bounded), kills)),
            str(seed),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    errors = folder / "errors"
    assert not errors.exists(), errors.read_text()
    return Zoo(folder / "zoo")


def check_kills(folder: Path, bounded: bool, kills: int, seed: int) -> None:
    zoo = run_kills(folder, bounded, kills, seed)
    assert zoo.check() == ()
    assert list((zoo.path / "incoming").iterdir()) == []
    assert zoo.bytes == sum(files(zoo).values())
    there = {model.model_id: model.name for model in zoo.models()}
    for number, name in there.items():
        assert same(zoo.read(number), zoo_kills.state(name))
    log = [line.split() for line in (folder / "log").read_text().splitlines()]
    said = {word: {line[-1] for line in log if line[0] == word} for word, *_ in log}
    added = {int(line[2]): line[1] for line in log if line[0] == "added"}
    removing = set(map(int, said.get("removing", ())))
    oldest = min(there) if bounded else 0
    for number, name in added.items():
        if number >= oldest and number not in removing:
            assert there[number] == name
    assert not set(map(int, said.get("removed", ()))) & there.keys()
    assert len(said["adding"]) > len(added) > kills
    assert len(said["started"]) > kills / 2
    if bounded:
        assert zoo.capacity_bytes is not None
        assert zoo.bytes <= zoo.capacity_bytes
        assert len(there) >= zoo_kills.MODELS / 2
        assert kills < 50 or len(added) > len(there), "some were evicted"


@pytest.mark.parametrize("bounded", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_ten_kills(tmp_path: Path, bounded: bool) -> None:
    check_kills(tmp_path, bounded, 10, 1)


@pytest.mark.slow
@pytest.mark.parametrize("bounded", [True, False])
def test_a_hundred_kills(tmp_path: Path, bounded: bool) -> None:
    """Of four processes that add, evict, remove and start from one another's models."""
    check_kills(tmp_path, bounded, 100, 2)


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE models SET accuracy = 0.99", "model 1"),
        ("UPDATE models SET name = x'ff00'", "model 1"),
        ("UPDATE models SET uses = 'many'", "model 1"),
        ("UPDATE settings SET value = '5' WHERE name = 'count'", "the setting count"),
    ],
)
def test_changed_rows_are_refused(zoo: Zoo, statement: str, place: str) -> None:
    first = add(zoo, state(1))
    index = zoo.path / "index.sqlite"
    change(index, statement)
    with pytest.raises(StoreError) as caught:
        Zoo(zoo.path).note_use(first)
    assert_states(str(caught.value), index, "damaged", place)


def test_an_accuracy_is_sealed_as_sqlite_stores_it(zoo: Zoo) -> None:
    first = add(zoo, state(1), accuracy=-0.0)
    assert [model.accuracy for model in Zoo(zoo.path).models()] == [0.0]
    zoo.note_use(first)
    assert Zoo(zoo.path).check() == ()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE parts SET digest = (SELECT MAX(digest) FROM parts WHERE name = 'fc.bias' "
        "AND model = 2) WHERE name = 'fc.bias' AND model = 1",
        "UPDATE parts SET name = 'x' WHERE model = 1 AND name = 'fc.bias'",
        "UPDATE tensors SET bytes = bytes + 1",
        "DELETE FROM parts WHERE model = 1",
        "DELETE FROM parts WHERE name = (SELECT MAX(name) FROM parts)",
    ],
)
def test_changed_tensors_of_a_model_are_noticed(zoo: Zoo, statement: str) -> None:
    first = add(zoo, state(1))
    second = add(zoo, state(2))
    index = zoo.path / "index.sqlite"
    change(index, statement)
    with pytest.raises(StoreError) as caught:
        Zoo(zoo.path).read(first)
    assert_states(str(caught.value), index, "damaged", "the tensors of model 1")
    with pytest.raises(StoreError, match="the tensors of model 1"):
        zoo.gc()
    assert any("model 1" in problem.message for problem in zoo.check())
    zoo.remove(first)
    zoo.remove(second)
    zoo.gc()
    assert files(zoo) == {}


@pytest.mark.parametrize("version", [1, 2])
def test_a_zoo_of_an_earlier_format_is_converted(zoo: Zoo, version: int) -> None:
    first = add(zoo, state(1))
    before, index = zoo.models(), zoo.path / "index.sqlite"
    change(index, "ALTER TABLE models DROP COLUMN parts")
    for table in ("models", "settings") if version == 1 else ():
        change(index, f"ALTER TABLE {table} DROP COLUMN seal")
    change(index, f"PRAGMA user_version = {version}")
    again = Zoo(zoo.path)
    assert again.models() == before
    again.note_use(first)
    assert again.models()[0].uses == 1
    assert Zoo(zoo.path).check() == ()

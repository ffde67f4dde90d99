"""Recorded warm starts: what is recorded, packed and fitted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'wattkeeper[live]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'wattkeeper[digits]'"
)

from benchmarks.warm_starts import families, fit, pack_table, record, record_table
from benchmarks.warm_starts.pack import SHIPPED, pack, read_folder, read_packed
from tests.support.traces import read_table
from wattkeeper.policies.matching.benefit import FITTED
from wattkeeper.sim.search.network_space import NetworkSpace


@pytest.mark.slow
def test_coefficients_are_those_of_the_shipped_trainings() -> None:
    warm = [each for run, lines in read_packed(SHIPPED).items() for each in fit.read(*run, lines)]
    assert len(warm) > 1600
    for name, value in fit.fit(warm)._asdict().items():
        assert getattr(FITTED, name) == pytest.approx(value, abs=5e-4), name


def test_shipped_trainings_say_where_they_are_from() -> None:
    with gzip.open(SHIPPED, "rt", encoding="utf-8") as file:
        about = json.loads(next(file))
    assert {"recorded", "cpu", "python", "torch", "numpy", "scikit-learn", "rule"} == set(about)
    runs = read_packed(SHIPPED)
    assert sum(map(len, runs.values())) == 2213
    for lines in runs.values():
        networks = {line["network"] for line in lines}
        assert {line["network"] for line in lines if line["parent"] is None} == networks
        for line in lines:
            assert len(line["curve"]) == line["epochs"] + 1
            assert line["curve"][line["best_epoch"]] == max(line["curve"])


@pytest.mark.parametrize("family", ["vit", "heads"])
def test_recordings_go_on_and_are_packed(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RULE", record.RULE._replace(most_epochs=1))
    path = tmp_path / f"{family}-9.jsonl"
    record.Recorder(record.Networks(family, 9, 3), path).run()
    text = path.read_text()
    record.Recorder(record.Networks(family, 9, 3), path).run()
    assert path.read_text() == text, "nothing is trained twice"
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["parent"] for line in lines].count(None) == 3
    names = {line["network"] for line in lines}
    assert {line["parent"] for line in lines} <= {None, *names}
    assert any(line["parent"] == line["network"] for line in lines) == (family == "heads")
    packed = tmp_path / "packed.gz"
    packed.write_bytes(
        gzip.compress("".join(f"{line}\n" for line in pack(read_folder(tmp_path))).encode())
    )
    assert read_packed(packed) == read_folder(tmp_path)


def test_a_table_is_recorded_and_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RULE", record.RULE._replace(most_epochs=1))
    small = NetworkSpace(1, (8, 16), (1,), ("plain",), (3, 5))
    monkeypatch.setattr(families, "SPACE", small)
    monkeypatch.setattr(pack_table, "SPACE", small)
    path = tmp_path / "space-1.jsonl"
    record_table.TableRecorder(record.Networks("space", 1, 4), path).run()
    text = path.read_text()
    record_table.TableRecorder(record.Networks("space", 1, 4), path).run()
    assert path.read_text() == text, "nothing is trained twice"
    table = read_table(pack_table.pack(tmp_path))
    assert [each.name for each in table.networks.values()] == ["c3-8", "c5-8", "c3-16", "c5-16"]
    parents = [parent for network, parent in table.recordings if network == "c3-8"]
    assert parents[:2] == [None, "c3-8"]
    assert sorted(map(str, parents[2:])) == ["c3-16", "c5-8"]

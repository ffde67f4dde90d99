"""`--csv`: what `--json` prints of results, as rows."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.scenarios.notebook.flat_rows import flatten, to_csv

FEW = ("quickstart", "--set", "workload.recurrences=3", "--set", "workload.workloads=[image]")


def read_csv(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), keep_default_na=False, dtype=str)


def test_a_run_prints_its_summary(inside: Command, tmp_path: Path) -> None:
    rows = read_csv(inside("run", *FEW, "--seeds", "2", "--out", "out", "--csv").stdout)
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    whole = rows[rows["by"] == ""].set_index(["variant", "metric"])
    assert whole.index.is_unique
    for name, about in summary["variants"].items():
        for metric, statistics in about["metrics"].items():
            row, versus = whole.loc[(name, metric)], about["versus"][metric]
            assert row["baseline"] == "default"
            for column, value in {
                "mean": statistics["mean"],
                "std": statistics["std"],
                "n": statistics["n"],
                "ci95_high": (statistics["ci95"] or (None, None))[1],
                "versus_ratio": versus["ratio"],
                "versus_verdict": versus["verdict"],
            }.items():
                expected = "" if value is None else str(value)
                assert row[column] == expected, (name, metric, column)
    parts = {(key, part) for key, parts in summary["by"].items() for part in parts}
    assert {*zip(rows["by"], rows["part"], strict=True)} == {("", ""), *parts}


def test_a_sweep_prints_the_summary_of_each_point(inside: Command) -> None:
    text = inside("run", *FEW, "--sweep", "objective.eta=0,1", "--out", "eta", "--csv").stdout
    rows = read_csv(text)
    assert {*zip(rows["point"], rows["objective.eta"], strict=True)} == {
        ("0001", "0"),
        ("0002", "1"),
    }
    for point in ("0001", "0002"):
        alone = inside("compare", f"eta/points/{point}", f"eta/points/{point}", "--json").stdout
        own = rows[(rows["point"] == point) & (rows["by"] == "")]
        expected = [row["reference"] for row in json.loads(alone)["comparisons"][0]["rows"]]
        assert [float(mean or "nan") for mean in own["mean"]] == pytest.approx(
            [float("nan") if value is None else value for value in expected], nan_ok=True
        )


def test_a_comparison_prints_the_rows_of_all_folders(inside: Command) -> None:
    for name, beta in (("a", "2"), ("b", "1.2"), ("c", "1.5")):
        inside("run", *FEW, "--out", name, "--set", f"variants.zeus.policies.configure.beta={beta}")
    rows = read_csv(inside("compare", "a", "b", "c", "--csv").stdout)
    found = json.loads(inside("compare", "a", "b", "c", "--json").stdout)["comparisons"]
    assert rows["folder"].tolist() == [
        name for name, one in zip("bc", found, strict=True) for _ in one["rows"]
    ]
    assert rows["verdict"].tolist() == [
        row["verdict"] or "" for one in found for row in one["rows"]
    ]


def test_one_form_at_a_time(inside: Command) -> None:
    assert_states(inside("run", *FEW, "--json", "--csv", code=2).stderr, "--json", "--csv")


def test_rows_are_flat() -> None:
    row = {
        "point": {"a.b": [1, 2]},
        "ci95": None,
        "time_s": {"measured": 1.5},
        "differ": ["x", "y"],
    }
    assert flatten(row) == {
        "a.b": "[1, 2]",
        "ci95_low": None,
        "ci95_high": None,
        "time_s_measured": 1.5,
        "differ": "x, y",
    }
    assert to_csv([{"a": 'x,"y"', "b": None}, {"a": 0.1, "c": True}]) == (
        'a,b,c\n"x,""y""",,\n0.1,,True\n'
    )


def test_no_text_is_a_formula(inside: Command, tmp_path: Path) -> None:
    """A spreadsheet would run what begins so; numbers stay numbers."""
    names = ["=1+1", "+cmd|' /C calc'!A0", "@SUM(1)", "-2+3", "plain"]
    variants = json.dumps({"default": {}} | {name: {} for name in names})
    more = ("--set", f"variants={variants}", "--seeds", "1")
    said = inside("run", *FEW, *more, "--out", "out", "--csv").stdout
    rows = read_csv(said)
    assert [*dict.fromkeys(rows["variant"])] == [
        "default",
        *(f"'{name}" for name in names[:4]),
        "plain",
    ]
    assert to_csv([{"value": -1.5, "@text": "-1.5"}]) == "value,'@text\n-1.5,'-1.5\n"
    assert to_csv([{"text": "\tx"}]) == "text\n'\tx\n"
    compared = inside("compare", "out", "out", "--csv").stdout
    for line in (*said.splitlines(), *compared.splitlines()):
        cells = next(csv.reader([line]))
        assert not [cell for cell in cells if cell.startswith(("=", "@", "+c"))], line

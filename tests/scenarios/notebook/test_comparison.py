"""`compare` in Python: the rows of the command's comparison, as a frame."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.results import seal
from wattkeeper import scenarios
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.run.run import ScenarioResult

FEW = ["workload.recurrences=4", "workload.workloads=[image]"]
BOLD = [*FEW, "variants.zeus.policies.configure.beta=1.2"]


@pytest.fixture(scope="module")
def studies() -> list[ScenarioResult]:
    return [scenarios.load("quickstart", settings, seeds=3).run() for settings in (FEW, BOLD)]


@pytest.fixture(scope="module")
def folders(
    studies: list[ScenarioResult], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("compared")
    for study, name in zip(studies, "ab", strict=True):
        study.save(folder / name, with_page=False)
    return folder / "a", folder / "b"


def test_rows_are_those_of_the_command(folders: tuple[Path, Path], inside: Command) -> None:
    frame = scenarios.compare(*folders)
    found = json.loads(inside("compare", *folders, "--json").stdout)["comparisons"][0]
    assert len(frame) == found["compared"] > 50
    rows = {(row["variant"], row["metric"]): row for row in frame.to_dict("records")}
    for expected in found["rows"]:
        row = rows.pop((expected["variant"], expected["metric"]))
        for key in ("reference", "other", "verdict", "holds"):
            assert row[key] == expected[key]
        bounds = [row["ci95_low"], row["ci95_high"]]
        assert bounds == expected["ci95"] or (expected["ci95"] is None and pd.isna(bounds).all())
    assert not rows
    assert frame.attrs["verdict"] in inside("compare", *folders).stdout.replace("\n", " ")
    assert any("configure.beta" in line for line in frame.attrs["differences"])
    assert frame["p"].dtype == frame["ratio"].dtype == float


def test_rows_that_changed_come_first_by_size(studies: list[ScenarioResult]) -> None:
    scaled = scenarios.load("quickstart", [*FEW, "variants.zeus.objective.eta=0.4"], seeds=6).run()
    usual = scenarios.load("quickstart", FEW, seeds=6).run()
    compared = [scenarios.compare(*studies), scenarios.compare(usual, scaled)]
    for frame in compared:
        differs = ~frame["verdict"].isin(["identical", None])
        place = np.select([frame["holds"], differs, frame["verdict"].notna()], [0, 1, 2], 3)
        assert (np.diff(place) >= 0).all()
        assert len(set(place)) > 1
        for number in set(place):
            change = (frame["ratio"][place == number] - 1).abs()
            assert change.fillna(-1).is_monotonic_decreasing
    assert compared[1]["holds"].any()
    assert compared[1]["verdict"].isna().any()  # costs under another eta


def test_studies_compare_in_memory_as_in_folders(
    studies: list[ScenarioResult], folders: tuple[Path, Path]
) -> None:
    expected = scenarios.compare(*folders)
    for sides in (studies, [scenarios.read(folders[0]), studies[1]], [str(folders[0]), folders[1]]):
        frame = scenarios.compare(*sides)
        pd.testing.assert_frame_equal(frame, expected)
        assert frame.attrs == expected.attrs


def test_a_run_and_a_sweep_are_not_compared(
    studies: list[ScenarioResult], inside: Command, tmp_path: Path
) -> None:
    few = [word for setting in FEW for word in ("--set", setting)]
    axis = ("--sweep", "objective.eta=0,1", "--seeds", "2")
    inside("run", "quickstart", *few, *axis, "--out", "sweep")
    sweep = scenarios.read(tmp_path / "sweep")
    frame = scenarios.compare(sweep, tmp_path / "sweep")
    assert set(frame["objective.eta"]) == {0, 1}
    assert set(frame["verdict"]) <= {"identical", None}
    with pytest.raises(InputError, match=r"sweep is a sweep, quickstart \(in memory\) is none"):
        scenarios.compare(sweep, studies[0])


def test_attempts_of_a_live_run_are_compared(folders: tuple[Path, Path], tmp_path: Path) -> None:
    live = shutil.copytree(folders[0], tmp_path / "live")
    about = json.loads((live / "manifest.json").read_text()) | {"backend": "live"}
    (live / "manifest.json").write_text(json.dumps(about))
    frame = scenarios.compare(folders[0], seal(live))
    assert len(frame) == about["attempts"]
    assert (frame["time_s_measured"] == frame["time_s_predicted"]).all()
    assert set(frame["energy_j_error"]) == {0}

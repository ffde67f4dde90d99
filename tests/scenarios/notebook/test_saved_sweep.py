"""`read` of a sweep's folder: its points, its metrics, the study at each point, its display."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import run_command
from tests.support.messages import assert_states
from wattkeeper import scenarios
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.notebook.display import SavedStudy
from wattkeeper.scenarios.notebook.sweep import SavedSweep


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep `out` over two values of eta, with two seeds each."""
    where = tmp_path_factory.mktemp("sweep")
    few = ("--set", "workload.recurrences=2", "--set", "workload.workloads=[image]", "--seeds", "2")
    arguments = ("run", "quickstart", *few, "--sweep", "objective.eta=0,1", "--out", "out")
    run_command(*arguments, traces=where / "library", cwd=where)
    return where / "out"


def test_a_sweep_has_its_points_metrics_and_studies(folder: Path) -> None:
    sweep = scenarios.read(folder)
    assert isinstance(sweep, SavedSweep)
    assert repr(sweep) == "<SavedSweep quickstart by objective.eta: 2 points, 2 seeds>"
    assert sweep.points["objective.eta"].to_dict() == {"0001": 0, "0002": 1}
    assert set(sweep.points["state"]) == {"done"}
    for point, eta in zip(("0001", "0002"), (0, 1), strict=True):
        study = sweep.study(point)
        assert isinstance(study, SavedStudy)
        assert study.manifest["scenario"]["objective"]["eta"] == eta
        own = sweep.metrics[sweep.metrics["point"] == point]
        assert own["value"].tolist() == study.metrics["value"].tolist()


def test_a_sweep_displays_the_answer_and_the_points_of_its_page(folder: Path) -> None:
    shown = scenarios.read(folder)._repr_html_()
    page = (folder / "report.html").read_text(encoding="utf-8")
    for part in (r'<ul class="answer">.*?</ul>', r'<table class="cards">.*?</table>'):
        (found,) = re.findall(part, shown, re.DOTALL)
        assert found in page


def test_absent_and_broken_points_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        scenarios.read(folder).study("0003")
    assert_states(str(raised.value), "'0003'", "0001 to 0002")
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "points/0002/summary.json").write_text("{}")
    sweep = scenarios.read(copy)
    assert sweep.study("0001").summary["variants"]
    with pytest.raises(InputError, match=r"summary.json"):
        sweep.study("0002")
    (copy / "metrics.parquet").write_text("")
    with pytest.raises(InputError, match=r"metrics.parquet"):
        scenarios.read(copy)

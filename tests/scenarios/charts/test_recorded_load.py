"""The chart of the recorded load: a run that reproduces the record lies on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.reports import Window, chromium, instance
from tests.support.slurm_logs import GPUS, draw_jobs, first_that_fits, write_sacct

SCENARIO = """
name: recorded
cluster:
  nodes: [{{gpu: a100, count: {nodes}, gpus: 8}}]
  power: {{a100: {{idle_w: 50, busy_w: 300}}}}
workload: {{kind: trace, trace: log, unusable: drop}}
variants:
  fjf: {{policies: {{select: fjf}}}}
  fifo: {{policies: {{select: fifo}}}}
  replay: {{policies: {{select: recorded}}}}
  larger: {{cluster: {{nodes: [{{gpu: a100, count: 9, gpus: 8}}]}}}}
  fast: {{workload: {{load: 2}}}}
baseline: fjf
seeds: 1
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path, inside: Command) -> Path:
    """A folder with a trace whose jobs the first one that fits started."""
    jobs = draw_jobs(200)
    write_sacct(tmp_path / "sacct.txt", jobs, first_that_fits(jobs))
    inside("traces", "import", "slurm", "sacct.txt", "--name", "log")
    return tmp_path


def run(inside: Command, folder: Path, nodes: int) -> Path:
    text = SCENARIO.format(nodes=nodes)
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    inside("run", "scenario.yaml", "--out", "results")
    return folder / "results/report.html"


def read_chart(page: Path) -> tuple[list[str], dict[str, Any]]:
    """The variants of a page, and the chart."""
    (data,) = re.findall(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    whole = json.loads(data)
    (chart,) = [each for each in whole["charts"] if each["id"] == "record"]
    return whole["variants"], chart


def test_a_run_that_reproduces_the_record_lies_on_it(inside: Command, folder: Path) -> None:
    page = run(inside, folder, GPUS // 8)
    variants, chart = read_chart(page)
    for panel in chart["panels"]:
        lines = {line["v"]: line["y"] for line in panel["lines"]}
        assert set(lines) == {-1, variants.index("fjf"), variants.index("fifo")}
        assert lines[-1] == pytest.approx(lines[variants.index("fjf")], abs=2e-3, rel=1e-3)
        assert lines[-1] != pytest.approx(lines[variants.index("fifo")], abs=0.1)
        assert len(lines[-1]) == len(chart["xs"])
    gpus, waiting = chart["panels"]
    assert gpus["y"]["max"] == 1
    assert 0.9 < max(gpus["lines"][0]["y"]) <= 1
    assert max(waiting["lines"][0]["y"]) > 1
    load = json.loads((folder / "results/manifest.json").read_text(encoding="utf-8"))[
        "recorded_load"
    ]
    width_s = (load["until_s"] - load["from_s"]) / len(load["gpus_busy"])
    gpu_s = sum(job.gpus * job.duration_s for job in draw_jobs(200))
    assert (load["jobs"], load["of"]) == (200, 200)
    assert width_s * sum(load["gpus_busy"]) == pytest.approx(gpu_s, rel=1e-4)


def test_the_log_is_an_area_with_a_name(browser: Any, inside: Command, folder: Path) -> None:
    """More GPUs were in use than the three nodes have."""
    page = run(inside, folder, GPUS // 8 - 1)
    assert "max" not in read_chart(page)[1]["panels"][0]["y"]
    window = Window(browser, page)
    assert_states(
        window.page.inner_text("#record"),
        "all 200 jobs",
        "fjf is the baseline",
        "share of the 24 described",
        "the cluster had more",
    )
    names = {one["name"] for one in window.series("record")}
    assert names == {"as recorded", "fjf", "fifo"}
    assert window.selected("record")["as recorded"]
    toggle = f"{instance('record')}.dispatchAction({{type: 'legendToggleSelect',"
    window.page.evaluate(f"{toggle}name: 'as recorded'}})")
    assert not window.selected("record")["as recorded"]
    window.page.locator(".chips button", has_text="fifo").click()
    assert not window.selected("record")["fifo"]
    assert not window.selected("record")["as recorded"]
    assert window.said == []
    window.context.close()

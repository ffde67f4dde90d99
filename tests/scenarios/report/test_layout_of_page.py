"""What a page looks like: axes in words, legends and tables that fit, warnings on points."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.reports import Window, chromium, instance
from wattkeeper.scenarios.analysis.resolved.key_words import (
    describe_setting,
    label_point,
    short_keys,
    title_of_key,
)
from wattkeeper.scenarios.charts.chart import is_spread

SCENARIO = """\
name: swept
question: Which cluster?
cluster: {gpu: x, gpus: 16, gpus_per_node: 8, idle_power_w: 50, busy_power_w: 300}
workload: {kind: trace, trace: log, unusable: drop}
variants:
  fifo: {}
  shortest-job-first-with-a-long-name: {policies: {select: sjf}}
  last-attained-service-with-a-long-name: {policies: {select: las}}
  gittins-index-with-a-long-name: {policies: {select: gittins}}
baseline: fifo
"""
LOG = "submit_time_s,duration_s,gpus\n0,1000,8\n10,90000,8\n20,300,4\n30,500,12\n40,100,4\n"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def swept(inside: Command, tmp_path: Path) -> tuple[Path, str]:
    """A sweep whose small cluster cannot run one of the jobs, and what the terminal showed."""
    (tmp_path / "log.csv").write_text(LOG)
    inside("traces", "import", "csv", "log.csv", "--name", "log")
    (tmp_path / "swept.yaml").write_text(SCENARIO)
    shown = inside(
        "run",
        "swept.yaml",
        "--sweep",
        "cluster.gpus=8,16,32",
        "--sweep",
        "cluster.busy_power_w=200,300",
        "--out",
        "swept",
    ).stdout
    return tmp_path / "swept", shown


def test_points_that_left_out_other_jobs_are_named(swept: tuple[Path, str], browser: Any) -> None:
    folder, shown = swept
    assert_states(
        " ".join(shown.split()),
        "Points left out different jobs",
        "4 to 5 jobs",
        "At gpus = 8",
        "1 job larger than",
        "jobs",
    )
    window = Window(browser, folder / "report.html")
    text = window.page.inner_text("body")
    assert_states(text, "Points left out different jobs", "At gpus = 8", "1 job larger")
    heads = window.page.locator("#points thead th").all_inner_texts()
    assert heads[:5] == [
        "point",
        "GPUs of the cluster",
        "power of a busy GPU, W",
        "jobs",
        "variant",
    ]
    first = window.page.locator("#points tbody tr").first.locator("td").all_inner_texts()
    assert first[:3] == ["8", "200", "4"]
    axes = window.page.evaluate(f"{instance('axis1')}.getOption().xAxis[0].name")
    assert axes == "power of a busy GPU, W"
    window.context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_cut_off_or_on_another_page(
    swept: tuple[Path, str], browser: Any, width: int
) -> None:
    folder, _ = swept
    for page in (folder / "report.html", folder / "points/0001/report.html"):
        if not page.exists():
            continue
        window = Window(browser, page, width=width)
        assert window.page.evaluate("document.documentElement.scrollWidth") == width
        cut = window.page.evaluate(
            "[...document.querySelectorAll('#points .scroll, #variants')]"
            ".filter((one) => one.scrollWidth > one.clientWidth + 1).length"
        )
        assert cut == 0
        assert window.page.evaluate(f"{instance('pareto')}.getOption().legend[0].type") == "plain"
        names = json.loads((folder / "points/0001/summary.json").read_text())["variants"]
        texts = window.page.locator("#chart-pareto svg text").all_text_contents()
        assert set(names) <= set(texts), "all names stand in the legend"
        legend, plot = window.page.evaluate(
            "((svg) => [[...svg.querySelectorAll('text')].filter((one) =>"
            f"{json.dumps(list(names))}.includes(one.textContent))"
            ".map((one) => one.getBoundingClientRect().bottom),"
            f"{instance('pareto')}.getModel().getComponent('grid').coordinateSystem.getRect().y"
            " + svg.getBoundingClientRect().top])(document.querySelector('#chart-pareto svg'))"
        )
        assert min(legend) < plot
        window.context.close()


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("cluster.power_cap_w", "power cap of the cluster, W"),
        ("objective.eta", "weight of energy (eta)"),
        ("variants.zeus.policies.configure.beta", "beta of configure in zeus"),
        ("variants.a.cluster.gpus", "GPUs of the cluster in a"),
        ("policies.select.quantum_gpu_s", "quantum gpu of select, s"),
        ("workload.trace", "trace (workload)"),
        ("seeds", "seeds"),
    ],
)
def test_keys_have_words_and_units(path: str, title: str) -> None:
    assert title_of_key(path) == title


def test_settings_have_units() -> None:
    text = describe_setting("cluster.power_cap_w", 120000.0)
    assert text == "power cap of the cluster: 120,000 W"


@pytest.mark.parametrize(
    ("values", "spread"),
    [([1, 2, 99], True), ([1, 2, 40], False), ([0, 2, 99], False), ([], False)],
)
def test_outliers_make_an_axis_logarithmic(values: list[float | None], spread: bool) -> None:
    assert is_spread([*values, None]) == spread


def test_points_are_named_by_short_keys_where_these_are_unambiguous() -> None:
    axes = ("workload.load", "cluster.pue", "variants.a.cluster.pue")
    assert list(short_keys(axes).values()) == ["load", *axes[1:]]
    assert short_keys(axes[:2]) == {"workload.load": "load", "cluster.pue": "pue"}
    values = {"workload.load": 2, "cluster.pue": 1.5}
    assert label_point(values) == "load = 2, pue = 1.5"
    assert label_point(values, axes) == "load = 2, cluster.pue = 1.5"

"""Nodes over time, and useful and lost work, on the page of runs in which nodes are lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.losses import SCENARIO, generate_jobs
from tests.support.messages import assert_states
from tests.support.reports import Window, chromium

DRAWN = (
    "{rate: 200, away_s: 1800, together: {share: 0.3, nodes: 3, rack: 4}, "
    "notice: {share: 0.5, length_s: 120}}"
)
PARTS = ("useful", "checkpoints and recovery", "jobs that never ended", "lost")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def with_jobs(inside: Command) -> Command:
    generate_jobs(inside, 0.6)
    return inside


def run(command: Command, text: str, *arguments: str) -> str:
    """The page of a scenario's run into `out`."""
    Path("losses.yaml").write_text(text, encoding="utf-8")
    command("run", "losses.yaml", "--out", "out", *arguments)
    return Path("out/report.html").read_text(encoding="utf-8")


def read_chart(page: str) -> tuple[list[str], dict[str, Any], str]:
    """Names of lines, the panels of the chart of nodes, and its caption."""
    (text,) = re.findall(r'id="data">(.*?)</script>', page)
    data = json.loads(text)
    (chart,) = (one for one in data["charts"] if one["id"] == "nodes")
    (caption,) = re.findall(
        r'<figure id="nodes">.*?<figcaption>(.*?)</figcaption>', page, re.DOTALL
    )
    return data["variants"], chart, caption


def read_work(page: str) -> list[dict[str, dict[str, float]]]:
    """The figures of each table of useful and lost work, by variant and part."""
    (section,) = re.findall(r'<section id="losses">.*?</section>', page, re.DOTALL)
    tables = []
    for table in re.findall(r"<table.*?</table>", section, re.DOTALL):
        rows = re.findall(r'<tr><th scope="row">.*?</svg>([^<]+)<(.*?)</tr>', table, re.DOTALL)
        tables.append(
            {
                variant: {
                    label.split(",\N{NO-BREAK SPACE}")[0].rsplit(", ", 1)[0]: float(
                        value.replace(",", "")
                    )
                    for label, value in re.findall(r'data-label="([^"]+)"><b>([^<]+)</b>', cells)
                }
                for variant, cells in rows
            }
        )
    return tables


def metrics(variant: str) -> dict[str, float]:
    summary = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    found = summary["variants"][variant]["metrics"]
    return {metric: values["mean"] for metric, values in found.items()}


def test_one_line_where_all_variants_meet_the_same_losses(with_jobs: Command) -> None:
    names, chart, caption = read_chart(run(with_jobs, SCENARIO.replace("EVENTS", DRAWN)))
    assert names == ["none", "anew", "saved", "all variants with losses"]
    above, below = chart["panels"]
    assert [panel["y"]["name"] for panel in chart["panels"]] == ["nodes up", "nodes lost at once"]
    assert above["x"]["name"].startswith("time since the first submission, ")
    (level,), (lost,) = above["lines"], below["lines"]
    assert level["v"] == lost["v"] == 3
    jobs = pd.read_parquet("out/jobs.parquet")
    ends = jobs.groupby("variant").finish_time_s.max()
    longest = max(("anew", "saved"), key=lambda name: ends[name])
    begin = jobs.submit_time_s.min()
    nodes = pd.read_parquet("out/nodes.parquet")
    nodes = nodes[(nodes.variant == longest) & (nodes.event != "notice")]
    nodes = nodes[(nodes.time_s >= begin) & (nodes.time_s <= ends[longest])]
    step = np.where(nodes.event == "up", 1, -1)
    moments = np.unique([begin, *nodes.time_s, ends[longest]])
    up = [8 + step[nodes.time_s <= moment].sum() for moment in moments]
    assert level["y"] == up
    size = {"days": 86400, "h": 3600}[above["x"]["name"].rsplit(", ", 1)[1]]
    assert above["xs"] == pytest.approx((moments - begin) / size, rel=1e-4)
    downs = nodes[nodes.event == "down"].groupby("time_s").size()
    assert [y for y in lost["y"] if y is not None] == downs.to_list()
    assert lost["marked"]
    assert len(lost["y"]) == len(below["xs"])
    assert downs.max() == 3
    assert_states(
        caption,
        f"nodes went down {downs.sum()} times at {len(downs)} moments, at most 3 at once",
        "of 8 nodes were up",
        "No node is lost in 'none'.",
    )


def test_a_line_for_each_course_of_losses(with_jobs: Command) -> None:
    text = SCENARIO.replace("EVENTS", DRAWN).replace(
        "baseline:",
        "  small: {cluster: {gpus: 8}}\n"
        "  never: {cluster: {losses: {events: {rate: 0.000001}}}}\nbaseline:",
    )
    names, chart, caption = read_chart(run(with_jobs, text, "--seeds", "2"))
    above, below = chart["panels"]
    lines = {names[line["v"]]: line["y"] for line in above["lines"]}
    assert set(lines) == {"anew, saved", "small", "never"}
    assert [line["v"] for line in below["lines"]] == [line["v"] for line in above["lines"]]
    assert {y for y in lines["never"] if y is not None} == {8}
    assert max(y for y in lines["small"] if y is not None) == 4
    assert_states(
        caption,
        "In never: no node went down; at least 8 of 8 nodes were up.",
        "of 4 nodes were up",
        "Of seed 1.",
    )


def test_useful_and_lost_work_are_all_that_jobs_held(with_jobs: Command) -> None:
    page = run(with_jobs, SCENARIO.replace("EVENTS", DRAWN))
    gpu_time, energy = read_work(page)
    jobs = pd.read_parquet("out/jobs.parquet")
    held_h = (jobs.finish_time_s - jobs.start_time_s) * jobs.gpus * jobs.gpu_milli / 3.6e6
    held_h = held_h.groupby(jobs.variant).sum()
    energy_kwh = jobs.groupby("variant").energy_j.sum() / 3.6e6
    for variant, parts in gpu_time.items():
        assert set(parts) <= set(PARTS)
        assert sum(parts.values()) == pytest.approx(held_h[variant], rel=1e-2)
        assert sum(energy[variant].values()) == pytest.approx(energy_kwh[variant], rel=1e-2)
    for variant in ("anew", "saved"):
        assert gpu_time[variant]["lost"] == pytest.approx(
            metrics(variant)["lost_gpu_s"] / 3600, rel=1e-2
        )
        assert energy[variant]["lost"] == pytest.approx(
            metrics(variant)["lost_energy_j"] / 3.6e6, rel=1e-2
        )
    assert metrics("saved")["unable_jobs"] == 0
    assert gpu_time["saved"]["useful"] == gpu_time["none"]["useful"]
    assert gpu_time["none"]["lost"] == gpu_time["none"]["checkpoints and recovery"] == 0
    assert gpu_time["saved"]["checkpoints and recovery"] > 0
    assert_states(
        page,
        'aria-label="useful ',
        "All attempts of all jobs that ran",
        "from the first submission to the last end in each variant",
        "useful, checkpoints and recovery, kWh",
        "300 jobs in ",
    )


def test_jobs_that_never_end_and_nodes_of_a_trace(with_jobs: Command, tmp_path: Path) -> None:
    """All nodes go at last, and a trace of nodes does not say how many the cluster has."""
    rows = ["node,event,time_s", *(f"n{n},down,{400000 + 1000 * n}" for n in range(8))]
    (tmp_path / "events.csv").write_text("\n".join(rows), encoding="utf-8")
    with_jobs("traces", "import", "node-events", "events.csv", "--name", "events")
    page = run(with_jobs, SCENARIO.replace("EVENTS", "events"))
    _, chart, caption = read_chart(page)
    (line,) = chart["panels"][0]["lines"]
    assert line["y"][0] == 8
    assert_states(caption, "nodes went down ", "In all variants with losses: ")
    gpu_time, _ = read_work(page)
    jobs = pd.read_parquet("out/jobs.parquet")
    held_h = (jobs.time_s - jobs.lost_time_s.fillna(0)) * jobs.gpus * jobs.gpu_milli / 3.6e6
    saved = jobs[jobs.variant == "saved"].sort_values("attempt").groupby("job_id").tail(1)
    never = saved[saved.lost_node.notna()].job_id
    assert 0 < len(never) <= metrics("saved")["unable_jobs"]
    expected = held_h[(jobs.variant == "saved") & jobs.job_id.isin(never)].sum()
    assert gpu_time["saved"]["jobs that never ended"] == pytest.approx(expected, rel=1e-2)
    assert " of all never ended</small>" in page


def test_many_losses_are_drawn_in_bins(with_jobs: Command) -> None:
    text = SCENARIO.replace("EVENTS", "{rate: 60000, away_s: 300}")
    text = "\n".join(line for line in text.split("\n") if not line.startswith("  anew"))
    page = run(with_jobs, text)
    _, chart, caption = read_chart(page)
    above, below = chart["panels"]
    (level,), (lost,) = above["lines"], below["lines"]
    assert len(above["xs"]) == len(level["y"]) == len(level["low"]) == len(lost["y"]) == 1000
    assert all(
        low <= y <= high <= 8
        for low, y, high in zip(level["low"], level["y"], level["high"], strict=True)
    )
    nodes = pd.read_parquet("out/nodes.parquet")
    jobs = pd.read_parquet("out/jobs.parquet")
    end = jobs[jobs.variant == "saved"].finish_time_s.max()
    downs = nodes[(nodes.event == "down") & (nodes.time_s <= end)]
    downs = downs[downs.time_s >= jobs.submit_time_s.min()]
    assert len(downs) > 2000
    assert sum(lost["y"]) == len(downs)
    assert_states(caption, "over 1000 bins of ", f"nodes went down {len(downs):,} times")
    assert below["y"]["name"].startswith("nodes lost in ")
    assert len(json.dumps(chart)) < 60_000


def test_without_losses_neither_is_there(with_jobs: Command) -> None:
    text = SCENARIO.replace("EVENTS", DRAWN).split("variants:")[0]
    text = re.sub(r"  losses:\n.*\n.*\n", "", text)
    page = run(with_jobs, f"{text}variants: {{none: {{}}}}\nbaseline: none\n")
    assert '<figure id="nodes">' not in page
    assert '<section id="losses">' not in page


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_in_a_browser(width: int, scheme: str, browser: Any, with_jobs: Command) -> None:
    run(with_jobs, SCENARIO.replace("EVENTS", DRAWN))
    window = Window(browser, Path("out/report.html"), width, scheme)
    assert window.said == []
    assert {one["name"] for one in window.series("nodes")} == {"all variants with losses"}
    assert window.drawn("nodes") > 20
    window.page.locator(".chips button", has_text="saved").click()
    assert window.selected("nodes")["all variants with losses"]
    assert window.page.evaluate("document.documentElement.scrollWidth") == width
    bar = window.page.locator("#losses tbody tr svg[role=img]").first.bounding_box()
    assert bar["width"] > 80
    window.context.close()

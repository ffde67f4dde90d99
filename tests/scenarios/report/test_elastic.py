"""The page of elastic jobs: its answer, bars of time and energy, and charts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import Command
from tests.support.elastic import SCENARIO
from tests.support.losses import generate_jobs
from tests.support.messages import assert_states
from tests.support.reports import Window, chromium, instance
from wattkeeper.scenarios.charts.pareto import EnergyTime, limit_points
from wattkeeper.scenarios.document.bars import format_figure

RENT = "rent: {node_hour: 0.9, on_demand: 3, currency: USD}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def run(command: Command, text: str, *arguments: str) -> str:
    """The page of a scenario's run into `out`."""
    Path("elastic.yaml").write_text(text, encoding="utf-8")
    command("run", "elastic.yaml", "--out", "out", *arguments)
    return Path("out/report.html").read_text(encoding="utf-8")


def rented() -> str:
    return SCENARIO.replace("boot_s: 60}\n", f"boot_s: 60}}\n  {RENT}\n")


def read_charts(page: str) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Names of variants, and the charts by id."""
    (text,) = re.findall(r'id="data">(.*?)</script>', page)
    data = json.loads(text)
    return data["variants"], {chart["id"]: chart for chart in data["charts"]}


def read_section(page: str, name: str) -> str:
    (section,) = re.findall(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
    return str(section)


def plain(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def read_answer(page: str) -> list[str]:
    """The sentences of the answer."""
    found = re.findall(r'<(?:li|p class="lead").*?</(?:li|p)>', read_section(page, "answer"))
    return [plain(each) for each in found]


def metrics() -> dict[str, dict[str, float]]:
    """Metrics of each variant, means over seeds."""
    summary = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    return {
        name: {metric: values["mean"] for metric, values in about["metrics"].items()}
        for name, about in summary["variants"].items()
    }


def test_the_answer_says_who_keeps_most_against_whom_and_over_which_time(inside: Command) -> None:
    page = run(inside, rented())
    most, least_energy, least_rent, baseline = read_answer(page)
    found = metrics()
    own, other = found["oobleck"], found["varuna"]
    more = 100 * (own["goodput"] / other["goodput"] - 1)
    assert_states(
        most,
        "oobleck keeps most of the work",
        f"{own['goodput']:#.4g} samples/s",
        f"{more:.1f} % more",
        "varuna",
        "over 24.0 h",
        f"{100 * own['ettr']:.1f} % of the time",
    )
    useful = own["elastic_useful_j"] / own["elastic_energy_j"]
    assert_states(
        least_energy,
        "oobleck needs the least energy",
        f"{own['useful_sample_j'] / 1000:.2f} kJ a committed sample",
        f"{100 * useful:.1f} % of it",
    )
    assert_states(
        least_rent,
        "oobleck costs the least rent",
        f"{1000 * own['useful_sample_rent']:#.4g} USD for 1,000 samples",
        f"{1000 * own['on_demand_rent'] / own['useful_samples']:#.4g} USD",
    )
    rent = f"{1000 * other['useful_sample_rent']:#.4g} USD"
    assert_states(baseline, "The baseline varuna", f"rent of 1,000 samples {rent}")


def test_variants_that_keep_as_much_are_named_together(inside: Command) -> None:
    text = SCENARIO.replace(
        "baseline:", "  again: {policies: {replan: {kind: oobleck, join: pays}}}\nbaseline:"
    )
    page = run(inside, text)
    assert "oobleck and again keep most of the work" in plain(page)


def test_bars_show_all_time_and_all_energy_of_a_sample(inside: Command) -> None:
    section = read_section(run(inside, rented()), "elastic")
    time, energy, rent = re.findall(r"<table.*?</table>", section, re.DOTALL)
    found = metrics()
    for table, whole in (
        (time, dict.fromkeys(found, 100.0)),
        (energy, {name: each["useful_sample_j"] for name, each in found.items()}),
    ):
        rows = re.findall(r'<tr><th scope="row">.*?</svg>([^<]+)<(.*?)</tr>', table, re.DOTALL)
        assert [name for name, _ in rows] == list(found)
        for name, cells in rows:
            figures = [float(each.replace(",", "")) for each in re.findall("<b>([^<]+)</b>", cells)]
            assert sum(figures) == pytest.approx(whole[name], rel=5e-3)
            widths = [float(each) for each in re.findall(r' width="([0-9.]+)"', cells)]
            most = max(whole.values())
            assert sum(widths) == pytest.approx(100 * whole[name] / most, rel=1e-4)
    for name, each in found.items():
        assert f"lost nodes {each['lost_attempts']:.0f} times" in plain(time)
        assert name in plain(rent)
        assert f"<b>{1000 * each['useful_sample_rent']:#.4g}</b>" in rent
    assert_states(plain(rent), "rent, USD", "of lost work, USD", "same samples on demand, USD")


def test_redundant_computation_is_a_part_of_energy(inside: Command) -> None:
    text = rented().replace(
        "baseline:", "  bamboo: {policies: {replan: {kind: bamboo, depth: 3}}}\nbaseline:"
    )
    section = read_section(run(inside, text), "elastic")
    time, energy, rent = re.findall(r"<table.*?</table>", section, re.DOTALL)
    found = metrics()
    assert [name for name, each in found.items() if "elastic_redundant_j" in each] == ["bamboo"]
    own = found["bamboo"]
    share = own["elastic_redundant_j"] / own["elastic_energy_j"]
    assert_states(plain(energy), "redundant, ", f"{100 * share:.1f} %")
    assert "redundant" not in plain(time)
    assert_states(
        plain(rent), "of redundant computation, USD", format_figure(own["redundant_rent"])
    )
    assert "Redundant: " in plain(section)


def test_charts_of_the_front_and_of_the_nodes(inside: Command) -> None:
    names, charts = read_charts(run(inside, SCENARIO))
    found = metrics()
    (front,) = charts["pareto"]["panels"]
    assert front["x"]["more"] is True
    for dot in front["dots"]:
        each = found[names[dot["v"]]]
        wanted = [each["goodput"], each["useful_sample_j"] / 1000]
        assert dot["at"] == pytest.approx(wanted, rel=1e-4)
    held, committed = charts["elastic-nodes"]["panels"]
    shapes = pd.read_parquet("out/shapes.parquet")
    for v, name in enumerate(found):
        own = shapes[shapes.variant == name]
        levels, marks = (line for line in held["lines"] if line["v"] == v)
        assert levels["y"][0] == own.nodes.iloc[0]
        assert max(levels["y"]) == own.nodes.max()
        lost = own[own.moment == "lost"]
        assert [y for y in marks["y"] if y is not None] == lost.nodes.to_list()
        assert marks["marked"]
        (line,) = (line for line in committed["lines"] if line["v"] == v)
        samples = (
            max(line["y"])
            * {"thousands": 1e3, "millions": 1e6}[committed["y"]["name"].rsplit(", ", 1)[1]]
        )
        assert samples == pytest.approx(own.samples.sum(), rel=1e-4)
    assert "jct" not in charts


def test_many_shapes_are_binned(inside: Command) -> None:
    text = SCENARIO.replace("rate: 3000, away_s: 1800", "rate: 90000, away_s: 60")
    names, charts = read_charts(run(inside, text))
    held = charts["elastic-nodes"]["panels"][0]["lines"]
    assert [names[line["v"]] for line in held] == ["varuna", "oobleck"]
    for line in held:
        assert len(line["x"]) == len(line["y"]) == 1000
        known = [
            row for row in zip(line["low"], line["y"], line["high"], strict=True) if None not in row
        ]
        assert all(low <= mean <= high for low, mean, high in known)


def test_a_sweep_is_of_goodput_too(inside: Command) -> None:
    """More losses, less goodput: the most is at the lowest rate."""
    page = run(inside, SCENARIO, "--sweep", "cluster.losses.events.rate=100,3000,9000")
    energy, most, *_ = read_answer(page)
    assert_states(energy, "Least energy of a committed sample")
    assert_states(most, "Most goodput", "by oobleck", "rate = 100")
    assert "Energy against goodput" in page
    _, charts = read_charts(page)
    (panel,) = charts["pareto"]["panels"]
    assert panel["x"]["more"] is True
    assert len(panel["dots"]) == 6


def test_the_front_of_goodput_stays_where_points_are_thinned() -> None:
    """Of 3,000 points of one variant, three are beaten by none; two of them by less goodput."""
    best = {1000: 1.0, 2000: 2.0, 3000: 3.0}
    every = [
        EnergyTime(0, {"mean": float(n)}, {"mean": best.get(n, 100.0)}) for n in range(1, 3001)
    ]
    kept, caption = limit_points(every, more=True)
    assert len(kept) <= 2000
    assert all(every[n - 1] in kept for n in best)
    assert_states(caption, "of 3,000")


def test_beside_other_jobs_both_parts_are_there(inside: Command) -> None:
    generate_jobs(inside, 0.6, jobs=30)
    text = SCENARIO.replace("  until_s:", "  others: {trace: jobs, gpu_types: ignore}\n  until_s:")
    page = run(inside, text.replace("gpus: 48", "gpus: 96").replace("rate: 3000", "rate: 300"))
    _, charts = read_charts(page)
    assert {"pareto", "jct", "elastic-nodes", "nodes"} <= charts.keys()
    assert "free beside other jobs" in plain(read_section(page, "elastic"))
    assert "lost nodes" not in read_section(page, "elastic")
    assert "nodes went down" in read_section(page, "losses")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_the_front_has_the_most_goodput_at_each_energy(
    width: int, scheme: str, inside: Command, browser: Any
) -> None:
    text = SCENARIO.replace(
        "baseline:",
        "  late: {policies: {replan: oobleck}}\n"
        "  on-notice: {policies: {replan: on-notice}}\nbaseline:",
    )
    names, charts = read_charts(run(inside, text))
    dots = [dot["at"] for dot in charts["pareto"]["panels"][0]["dots"]]
    best = [
        at for at in dots if not any(x >= at[0] and y <= at[1] and [x, y] != at for x, y in dots)
    ]
    assert 0 < len(best) < len(dots)
    window = Window(browser, Path("out/report.html"), width, scheme)
    assert window.said == []
    front = window.page.evaluate(
        f"{instance('pareto')}.getOption().series.find((one) => one.name === 'front').data"
    )
    assert sorted(front) == sorted(best)
    assert {one["name"] for one in window.series("elastic-nodes")} == set(names[:4])
    assert window.drawn("elastic-nodes") > 20
    assert window.page.evaluate("document.documentElement.scrollWidth") == width
    bar = window.page.locator("#elastic tbody tr svg[role=img]").first.bounding_box()
    assert bar["width"] > 80
    window.context.close()

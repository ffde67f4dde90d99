"""The page of a study, in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.reports import Window, chromium, instance, save_sweep
from tests.support.results import seal
from wattkeeper import scenarios
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.charts.pareto import EnergyTime, limit_points
from wattkeeper.scenarios.document.comparisons.sweep import read_rows
from wattkeeper.scenarios.report import render_page, render_sweep_page
from wattkeeper.scenarios.run.run import ScenarioResult
from wattkeeper.sim.cluster_results.schemas import CLUSTER

FEW = ("workload.recurrences=12", "workload.workloads=[image, language]")
TINY = ("workload.recurrences=4", "workload.workloads=[image]")
CHARTS = ["pareto", "regret", "jct", "time", "choices"]
EVIL = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>&\"'"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def done() -> ScenarioResult:
    return scenarios.load("quickstart", FEW, seeds=[1, 2]).run()


@pytest.fixture(scope="module")
def text(done: ScenarioResult) -> str:
    return render_page(done)


@pytest.fixture
def path(text: str, tmp_path: Path) -> Path:
    return write_page(text, tmp_path)


def write_page(text: str, folder: Path) -> Path:
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    return path


@dataclass
class Altered(Study):
    """Results that a run would not leave so easily."""

    whole: ScenarioResult
    manifest: Manifest
    summary: dict[str, Any]
    rows: int | None = None
    without: tuple[str, ...] = ()

    def table(self, name: str, columns: Any = None) -> pa.Table:
        table = self.whole.table(name, columns)
        for column in set(self.without) & set(table.column_names):
            at = table.schema.get_field_index(column)
            table = table.set_column(at, column, pa.nulls(len(table), pa.float64()))
        return table if self.rows is None else table.slice(0, self.rows)


def change_results(
    done: ScenarioResult, change: Any = lambda manifest, summary: None, **more: Any
) -> Altered:
    manifest, summary = json.loads(json.dumps([done.manifest, done.summary]))
    change(manifest, summary)
    return Altered(done, manifest, summary, **more)


def test_page_loads_nothing_and_logs_nothing(
    browser: Any, path: Path, done: ScenarioResult
) -> None:
    window = Window(browser, path)
    assert window.said == []
    assert window.asked == [path.resolve().as_uri()]
    assert window.charts() == CHARTS
    variants = list(done.summary["variants"])
    for chart in CHARTS:
        series = window.series(chart)
        assert {one["name"] for one in series} - {"front"} == set(variants), chart
        assert all(one["points"] > 0 for one in series), chart
        assert window.drawn(chart) > len(variants)
    assert window.page.inner_text("h1") == done.manifest["scenario"]["question"]
    first = window.page.inner_text(".basis")
    assert_states(
        first,
        "synthetic: ",
        "not measured",
        "idle power of GPUs",
        "4 variants × 2 seeds",
        "24 jobs each",
    )
    assert first.count("measured") == 2, "of the profiles, and of idle power"
    assert window.page.locator("#answer > .lead").count() == 1
    assert_states(
        " ".join(window.page.inner_text("#answer").split()),
        "The baseline default: all jobs together took ",
        "MJ",
        "mean time of a job from submission to end",
        "oracle, which knows the future and cannot be run, saves ",
        "% of the energy of all jobs [",
    )
    assert "last 5 recurrences" in window.page.inner_text("#parts")
    marks = window.page.inner_text("#variants")
    assert_states(marks, "lower: the 95 % interval", "below 0 %", "unadjusted")
    assert "Power is that of the cluster" in window.page.inner_text("#time")
    window.context.close()


def test_chips_toggle_a_variant_in_all_charts(browser: Any, path: Path) -> None:
    window = Window(browser, path)
    chip = window.page.locator(".chips button", has_text="zeus")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert not any(window.selected(chart)["zeus"] for chart in CHARTS)
    window.page.evaluate(
        f"{instance('time')}.dispatchAction({{type: 'legendToggleSelect',name: 'oracle'}})"
    )
    assert not any(window.selected(chart)["oracle"] for chart in CHARTS)
    assert all(window.selected(chart)["default"] for chart in CHARTS)
    chip.click()
    assert all(window.selected(chart)["zeus"] for chart in CHARTS)
    window.page.select_option("#view-choices", "language")
    assert not window.selected("choices")["oracle"]
    window.page.mouse.move(0, 0)
    window.page.hover("#chart-time")
    window.until("document.querySelector('#chart-time').innerText.includes('zeus')")
    assert window.said == []
    window.context.close()


def test_themes_and_print(browser: Any, path: Path) -> None:
    window = Window(browser, path, scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = f"{instance('time')}.getOption().textStyle.color"
    dark = window.page.evaluate(f"[{paper}, {ink}]")
    window.page.click("#theme")
    light = window.page.evaluate(f"[{paper}, {ink}]")
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] != light[0]
    assert dark[1] != light[1]
    window.page.click("#theme")
    assert window.page.evaluate(f"[{paper}, {ink}]") == dark
    zooms = f"{instance('time')}.getOption().dataZoom.length"
    assert window.page.evaluate(zooms) == 1
    window.page.emulate_media(media="print")
    window.until(f"{zooms} === 0")
    assert window.page.evaluate(paper) == light[0]
    window.page.emulate_media(media="screen")
    window.until(f"{zooms} === 1")
    assert window.page.pdf(format="A4").startswith(b"%PDF")
    assert window.page.locator(".chart svg").count() == len(CHARTS)
    assert window.page.locator(".chart canvas").count() == 0
    assert window.said == []
    window.context.close()


def test_page_fits_a_phone(browser: Any, path: Path) -> None:
    window = Window(browser, path, width=360)
    assert window.page.evaluate("document.documentElement.scrollWidth") == 360
    assert window.said == []
    window.context.close()


def read_positions(window: Window, kind: str) -> dict[str, list[list[float]]]:
    """Where dots or the front of energy against time are, by variant."""
    found: dict[str, list[list[float]]] = window.page.evaluate(
        f"Object.fromEntries({instance('pareto')}.getOption().series"
        f".filter((one) => one.id.startsWith('{kind}'))"
        ".map((one) => [one.name, one.data.map((dot) => dot.value ?? dot)]))"
    )
    return found


def pareto_front(points: list[list[float]]) -> list[list[float]]:
    return sorted(
        one
        for one in points
        if not any(x <= one[0] and y <= one[1] and [x, y] != one for x, y in points)
    )


@pytest.mark.parametrize("swept", [False, True])
def test_front_is_of_shown_variants_without_oracles(
    swept: bool, browser: Any, path: Path, tmp_path: Path
) -> None:
    if swept:
        save_sweep(tmp_path / "swept", {"objective.eta": [1, 0, 0.5]}, FEW)
        path = write_page(render_sweep_page(tmp_path / "swept"), tmp_path)
    window = Window(browser, path)
    dots = read_positions(window, "dots")
    assert set(dots) == {"default", "frugal", "zeus", "oracle"}
    hidden: set[str] = set()
    for name in (None, "oracle", "zeus", "default", "frugal", "oracle"):
        if name is not None:
            window.page.locator(".chips button", has_text=name).click()
            hidden ^= {name}
        shown = [one for of, each in dots.items() if of not in hidden | {"oracle"} for one in each]
        assert read_positions(window, "front")["front"] == sorted(
            [list(one) for one in {tuple(one) for one in pareto_front(shown)}]
        )
    assert "oracle knows the future" in window.page.inner_text("#pareto")
    window.page.locator(".chips button", has_text="zeus").click()
    texts = " ".join(window.page.locator("#chart-pareto svg text").all_text_contents())
    if swept:
        assert "zeus" in texts
        assert "0.5" in texts.split(), "values of the axis"
        assert len(read_positions(window, "path")["zeus"]) == 3
    assert window.said == []
    window.context.close()


class Listener(BaseHTTPRequestHandler):
    """Notes who asks."""

    heard: list[str]

    def do_GET(self) -> None:  # the library calls it so
        self.heard.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_content_policy_blocks_requests(browser: Any, text: str, tmp_path: Path) -> None:
    handler = type("Heard", (Listener,), {"heard": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    there = f"http://127.0.0.1:{server.server_port}"
    plants = (
        f'<img src="{there}/image"><iframe src="{there}/frame"></iframe>'
        f'<script src="{there}/script.js"></script><script>window.hit = 1</script>'
        f'<link rel="stylesheet" href="{there}/style.css"><img src=x onerror="window.hit = 2">'
        f"<style>body {{ background: url({there}/paper) }}</style>"
    )
    window = Window(browser, write_page(text.replace("<header>", f"{plants}<header>"), tmp_path))
    window.page.evaluate(f"fetch('{there}/fetch').catch(() => 0)")
    assert window.page.evaluate("window.hit") is None
    assert any("Content Security Policy" in line for line in window.said)
    assert window.charts() == CHARTS
    window.context.close()
    loose = re.sub(r"<meta http-equiv=.*>", "", text.replace("<header>", f"{plants}<header>"))
    window = Window(browser, write_page(loose, tmp_path))
    server.shutdown()
    server.server_close()
    window.context.close()
    assert "/image" in handler.heard, "without the policy it is asked for"  # type: ignore[attr-defined]
    assert "/fetch" not in handler.heard  # type: ignore[attr-defined]


def test_texts_of_a_scenario_are_escaped(
    browser: Any, done: ScenarioResult, tmp_path: Path
) -> None:
    def change(manifest: dict[str, Any], summary: dict[str, Any]) -> None:
        scenario = manifest["scenario"]
        scenario |= {"name": EVIL, "question": EVIL}
        manifest["inputs"][0] |= {"trace": EVIL, "source": EVIL}
        manifest["modelled"].append(EVIL)
        manifest["dropped_jobs"] = {EVIL: 3}
        summary["by"]["workload"] = {
            f"{name} {EVIL}": part for name, part in summary["by"]["workload"].items()
        }

    document = scenarios.load("quickstart", TINY, seeds=[1])
    variants = {
        EVIL if name == "zeus" else name: one for name, one in document.scenario.variants.items()
    }
    loaded = document._replace(scenario=document.scenario.model_copy(update={"variants": variants}))
    window = Window(
        browser, write_page(render_page(change_results(loaded.run(), change)), tmp_path)
    )
    assert window.said == []
    assert window.page.evaluate("window.hit") is None
    assert window.page.inner_text("h1") == EVIL
    assert window.page.title() == EVIL
    assert EVIL in window.page.inner_text(".chips")
    assert EVIL in {one["name"] for one in window.series("time")}
    window.page.hover("#chart-time")
    window.until("document.querySelector('#chart-time').innerText.includes('img')")
    assert window.page.evaluate("window.hit") is None
    assert window.page.locator("img").count() == 0
    window.context.close()


@pytest.mark.slow
def test_fifty_variants_of_one_seed_in_other_scripts(browser: Any, tmp_path: Path) -> None:
    loaded = scenarios.load("quickstart", TINY, seeds=[1])
    (one, *_) = loaded.scenario.variants.values()
    variants = {"default": one} | {f"变体-{at} né": one for at in range(49)}
    kept = loaded.scenario.model_copy(update={"variants": variants})
    text = render_page(loaded._replace(scenario=kept).run())
    assert len(text.encode()) < 5_000_000
    window = Window(browser, write_page(text, tmp_path))
    assert window.said == []
    assert len({one["name"] for one in window.series("time")}) == 50
    assert "One seed" in window.page.inner_text("body")
    answer = window.page.inner_text("#answer")
    assert answer.startswith("No variant changes the cost.")
    assert "变体" not in answer
    window.context.close()


def remove_energy(manifest: dict[str, Any], summary: dict[str, Any]) -> None:
    absent = {"mean": None, "std": None, "ci95": None, "n": 0}
    for one in summary["variants"].values():
        for metric in ("energy_j", "cost", "regret", "cluster_energy_j"):
            one["metrics"][metric] = absent
            one["versus"][metric] = {"ratio": None, "ci95": None}
    manifest["backend"] = "live"
    manifest["live"] = {"devices": [], "energy": [], "attempts": [], "folder": "there"}


@pytest.mark.parametrize("case", ["no energy", "empty", "one variant"])
def test_page_without_some_data(
    case: str, browser: Any, done: ScenarioResult, tmp_path: Path
) -> None:
    if case == "no energy":
        study: Study = change_results(done, remove_energy, without=("energy_j", "cost", "power_w"))
        charts = ["jct", "time", "choices"]
    elif case == "empty":
        study, charts = change_results(done, rows=0), ["pareto"]
    else:
        loaded = scenarios.load("quickstart", TINY, seeds=[1])
        alone = {"default": loaded.scenario.variants["default"]}
        scenario = loaded.scenario.model_copy(update={"variants": alone})
        study, charts = loaded._replace(scenario=scenario).run(), CHARTS
    window = Window(browser, write_page(render_page(study), tmp_path))
    assert window.said == []
    assert window.charts() == charts
    body = window.page.inner_text("body")
    assert "NaN" not in body
    assert "None" not in body.replace("None of", "")
    if case == "no energy":
        assert "Nothing measured energy" in body
        assert "Run live on cpu" in body
    if case == "one variant":
        assert "The baseline default: all jobs together took" in window.page.inner_text(
            "#answer .lead"
        )
        assert window.page.locator(".chips").count() == 0
    window.context.close()


def test_badges_tell_the_effect_size(done: ScenarioResult) -> None:
    def change(manifest: dict[str, Any], summary: dict[str, Any]) -> None:
        versus = summary["variants"]["zeus"]["versus"]
        versus["cost"] |= {"verdict": "noise", "effect": -1.5}

    assert "effect size -1.50" in render_page(change_results(done, change))


def test_run_and_report_write_the_same_page(inside: Command, tmp_path: Path) -> None:
    few = [word for setting in FEW for word in ("--set", setting)]
    for folder in ("one", "two"):
        inside("run", "quickstart", *few, "--seeds", "2", "--out", folder)
    first = (tmp_path / "one/report.html").read_bytes()
    assert first == (tmp_path / "two/report.html").read_bytes()
    shown = inside("report", "one", "--out", "again.html").stdout
    assert shown == "Report: again.html\n"
    assert (tmp_path / "again.html").read_bytes() == first
    (tmp_path / "one/report.html").unlink()
    inside("report", "one")
    assert (tmp_path / "one/report.html").read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.html", "one", "two"]
    said = inside("report", "none", code=2).stderr
    assert_states(said, "none: ", "no folder")


def test_page_of_a_sweep(browser: Any, inside: Command, tmp_path: Path) -> None:
    folder = tmp_path / "swept"
    axes: dict[str, list[Any]] = {"objective.eta": [0, 0.5, 1], "cluster.gpus": [1, 3]}
    save_sweep(folder, axes, TINY, failed=1)
    inside("report", "swept")
    window = Window(browser, folder / "report.html")
    assert window.said == []
    assert window.charts() == ["pareto", "axis0", "axis1"]
    names = {one["name"] for one in window.series("pareto")}
    assert names == {"default", "frugal", "zeus", "oracle", "front"}
    dots = [one for one in window.series("pareto") if one["id"].startswith("dots")]
    assert [one["points"] for one in dots] == [5] * 4
    body = window.page.inner_text("body")
    assert_states(body, "5 of 6 points", "1 point failed", "a worker was killed")
    assert "One seed" not in body
    assert window.page.locator("#points tbody tr").count() == 20
    window.page.select_option("#view-axis0", "time")
    assert window.said == []
    window.context.close()
    (folder / "sweep.json").write_text("{}", encoding="utf-8")
    assert_states(inside("report", "swept", code=2).stderr, "swept", "no sweep")
    assert "<h1>" in render_sweep_page(write_empty_sweep(tmp_path))


def test_sweep_page_separates_close_values_and_warns(tmp_path: Path) -> None:
    values = [0.12345671, 0.12345672]
    save_sweep(tmp_path, {"objective.eta": values}, TINY)
    path = tmp_path / "points/0001/manifest.json"
    changed = json.loads(path.read_text()) | {"seeds": [1], "dropped_jobs": {"too large": 3}}
    path.write_text(json.dumps(changed), encoding="utf-8")
    text = render_sweep_page(seal(tmp_path))
    assert '"x":[0.12345671,0.12345672]' in text, "along the axis there are two values"
    assert "One seed" in text
    assert "too large" in text


def test_memory_of_a_sweep_page_is_bounded(tmp_path: Path) -> None:
    save_sweep(tmp_path, {"objective.eta": [0, 1]}, TINY)
    path = tmp_path / "sweep.json"
    sweep = json.loads(path.read_text(encoding="utf-8"))
    about = json.loads((tmp_path / "points/0001/manifest.json").read_text(encoding="utf-8"))
    about["mapping"] = [{"group": "g" * 300_000}]
    for at in range(2, 130):
        copy = shutil.copytree(tmp_path / "points/0001", tmp_path / f"points/{at + 1:04}")
        (copy / "manifest.json").write_text(json.dumps(about), encoding="utf-8")
        sweep["points"].append(sweep["points"][0] | {"id": copy.name})
    path.write_text(json.dumps(sweep), encoding="utf-8")
    text = render_sweep_page(seal(tmp_path))
    assert text.count('<tr><th scope="row">0') == 500
    assert_states(text, "first 500 of 520 rows", "metrics.parquet")
    some = sweep | {"points": sweep["points"][2:22]}
    tracemalloc.start()
    assert len(read_rows(tmp_path, some)) == 20
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 20 * 100_000
    assert most < kept + 10 * 300_000


def test_sweep_answer_names_noise_ties_and_bounds(browser: Any, tmp_path: Path) -> None:
    beta = "variants.zeus.policies.configure.beta"
    save_sweep(tmp_path, {"objective.eta": [0, 0.5, 1], beta: [2, 3]}, TINY)
    for path in (tmp_path / "points").glob("*/summary.json"):
        summary = json.loads(path.read_text(encoding="utf-8"))
        versus = summary["variants"]["zeus"]["versus"]
        versus["energy_j"] |= {"verdict": "noise", "ratio": 1.02, "ci95": [0.9, 1.1]}
        ratio = 0.5 if path.parent.name in ("0003", "0004", "0005", "0006") else 0.9
        versus["time_s"] |= {"verdict": "lower", "ratio": ratio, "ci95": [ratio, ratio]}
        times = {"default": (5e6, 3600), "frugal": (7e6, 9000), "zeus": (6e6, 3600)}
        for name, (energy, time) in (times | {"oracle": (1, 1)}).items():
            metrics = summary["variants"][name]["metrics"]
            metrics["energy_j"] |= {"mean": energy, "ci95": [0.9 * energy, 1.1 * energy]}
            metrics["time_s"] |= {"mean": time, "ci95": [time, time]}
        path.write_text(json.dumps(summary), encoding="utf-8")
    window = Window(browser, write_page(render_sweep_page(seal(tmp_path)), tmp_path))
    said = " ".join(window.page.locator("#answer").inner_text().split())
    assert_states(
        said,
        "Least energy: 5.00 MJ [4.50, 5.50] by default at every point; ",
        "1.0 J by oracle",
        "by default (and as little by zeus) at every point; ",
        "oracle (",
        "bound)",
        "zeus: no difference beyond noise in energy at every point",
        "training time from 50.0 % less at eta = 0.5 and 1 to 10.0 % less at eta = 0, ",
        "against default",
    )
    assert "Means of 2 seeds" in window.page.inner_text("body")
    assert "2 at each point: 1, 2" in window.page.inner_text(".basis")
    assert "points/*/manifest.json" in window.page.inner_text("#details")
    assert window.page.locator("#points .badge.noise").count() >= 6
    assert "unadjusted for their number" in window.page.inner_text("#points")
    for chart in ("axis0", "axis1"):
        window.page.select_option(f"#view-{chart}", "cost")
        axis = window.page.evaluate(f"{instance(chart)}.getOption().yAxis[0].name")
        assert axis == "cost against default", "under different eta it has no common unit"
        assert_states(window.page.inner_text(f"#{chart}"), "different eta", "not compared")
    lines = [one for one in window.series("axis0") if one["id"].startswith("line")]
    assert len(lines) == 4 * 2, "one for each value of the other axis"
    assert "solid: beta = 2; dashed: beta = 3" in window.page.inner_text("#axis0")
    assert window.said == []
    window.context.close()


def read_dots(text: str) -> list[dict[str, Any]]:
    """The dots of energy against time."""
    (data,) = re.findall(r'id="data">(.*?)</script>', text)
    (chart,) = [one for one in json.loads(data)["charts"] if one["id"] == "pareto"]
    dots: list[dict[str, Any]] = chart["panels"][0]["dots"]
    return dots


def test_large_sweep_draws_the_front_and_a_sample(tmp_path: Path) -> None:
    points = 600
    made = scenarios.load("quickstart", TINY, seeds=[1]).run()
    made.save(tmp_path / "made", with_page=False)
    summary = json.loads((tmp_path / "made/summary.json").read_text(encoding="utf-8"))
    variants = list(summary["variants"])
    draws = np.random.default_rng(1).lognormal(size=(points, len(variants), 2))
    found = []
    for at, values in enumerate(draws.tolist(), 1):
        folder = tmp_path / f"swept/points/{at:04}"
        folder.mkdir(parents=True)
        for name in CLUSTER.files - CLUSTER.optional_files - {"summary.json"}:
            (folder / name).symlink_to(tmp_path / "made" / name)
        for variant, pair in zip(variants, values, strict=True):
            for metric, value in zip(("time_s", "energy_j"), pair, strict=True):
                summary["variants"][variant]["metrics"][metric] |= {"mean": value}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        found.append({"id": f"{at:04}", "values": {"objective.eta": at}, "state": "done"})
    axes = {"objective.eta": list(range(1, points + 1))}
    sweep = {"scenario": "a", "question": "b", "baseline": "default", "axes": axes, "points": found}
    (tmp_path / "swept/sweep.json").write_text(json.dumps(sweep), encoding="utf-8")
    text = render_sweep_page(seal(tmp_path / "swept"))
    drawn = {(dot["v"], int(dot["value"])) for dot in read_dots(text)}
    assert len(drawn) == 2000
    assert "2,000 of 2,400: " in text
    for v in range(len(variants)):
        best = pareto_front(draws[:, v].tolist())
        ids = [at for at, pair in enumerate(draws[:, v].tolist(), 1) if pair in best]
        assert len(ids) > 2
        assert {(v, at) for at in ids} <= drawn


def test_long_front_is_thinned_with_a_caption() -> None:
    def make_point(at: int, variant: int) -> EnergyTime:
        return EnergyTime(variant, {"mean": float(at)}, {"mean": float(-at)})

    every = [make_point(at, variant) for at in range(3000) for variant in range(2)]
    kept, said = limit_points([*every, EnergyTime(0, {"mean": None}, {"mean": 1.0})])
    assert [sum(one.variant == v for one in kept) for v in range(2)] == [1000, 1000]
    assert_states(said, "2,000 of 6,000: ", "evenly spaced")
    assert all(make_point(at, v) in kept for at in (0, 2999) for v in range(2))
    assert limit_points(every[:2000]) == (every[:2000], "")


def write_empty_sweep(folder: Path) -> Path:
    """A sweep of which nothing is done."""
    point = {"id": "0001", "values": {"objective.eta": 1}, "state": "failed", "failures": []}
    sweep = {"scenario": "a", "question": "b", "axes": {"objective.eta": [1]}, "points": [point]}
    (folder / "sweep.json").write_text(
        json.dumps(sweep | {"baseline": "c", "seeds": [1]}), encoding="utf-8"
    )
    return seal(folder)


@pytest.mark.slow
def test_page_of_the_philly_log_loads_fast(
    browser: Any, shared: Path, inside: Command, tmp_path: Path
) -> None:
    """82,247 jobs under three schedulers."""
    inside("traces", "import", "philly-csv", shared / "data/philly/philly.csv", "--name", "philly")
    inside("run", "philly-schedulers", "--out", "philly")
    path = tmp_path / "philly/report.html"
    assert path.stat().st_size < 1_500_000
    loads = []
    for _ in range(3):
        window = Window(browser, path)
        loads.append(window.page.evaluate("performance.now()"))
        assert window.said == []
        assert window.charts() == ["pareto", "jct", "delay", "time"]
        assert len(window.series("time")) == 27
        window.context.close()
    assert min(loads) < 3000, loads


def test_page_of_a_search_has_savings(done: ScenarioResult) -> None:
    """A summary with the savings of a search."""

    def change(manifest: dict[str, Any], summary: dict[str, Any]) -> None:
        manifest |= {"backend": "live", "inputs": [], "modelled": []}
        manifest["scenario"]["workload"] = {"kind": "search"}
        some = {"mean": 0.231, "ci95": [0.2, 0.26], "n": 3}
        shares = dict.fromkeys(("work", "epochs", "time_s", "time_with_overhead_s"), some)
        lost = {"mean": -0.12, "ci95": None, "n": 1}
        summary["saved"] = {"zeus": shares | {"accuracy_points": lost}}

    text = re.sub(r"<[^>]*>", "", render_page(change_results(done, change)))
    assert_states(
        text,
        "zeus saves 23.1 % of work [20.0, 26.0], ",
        "23.1 % of epochs",
        "accuracy −0.12 points",
        "none: all trainings were real",
        "No meter",
    )

"""What tests of pages share: a real browser, and folders of sweeps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.support.results import seal
from wattkeeper import scenarios

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

READY = "html[data-ready]"
"""The page is drawn."""


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium with a profile of its own."""
    from playwright.sync_api import sync_playwright

    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Window:
    """A page in the browser, and what it said and asked for."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, scheme: str = "light") -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector(READY, state="attached", timeout=120_000)

    def until(self, expression: str) -> None:
        """Wait until it is true; the page's policy forbids a browser to evaluate texts itself."""
        for _ in range(600):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(100)
        pytest.fail(f"never: {expression}")

    def series(self, chart: str) -> list[dict[str, Any]]:
        """Name, id and number of points of what a chart draws."""
        found: list[dict[str, Any]] = self.page.evaluate(
            f"{instance(chart)}.getOption().series"
            ".map((one) => ({name: one.name, id: one.id, points: one.data.length}))"
        )
        return found

    def drawn(self, chart: str) -> int:
        """Number of lines and shapes of the picture."""
        count: int = self.page.locator(f"#chart-{chart} svg path").count()
        return count

    def charts(self) -> list[str]:
        """The charts of the page, in its order."""
        found: list[str] = self.page.evaluate(
            "[...document.querySelectorAll('.chart')].map((one) => one.id.slice(6))"
        )
        return found

    def selected(self, chart: str) -> dict[str, bool]:
        """Which variants a chart shows."""
        found: dict[str, bool] = self.page.evaluate(
            f"{instance(chart)}.getOption().legend[0].selected"
        )
        return found


def instance(chart: str) -> str:
    """The chart in the browser."""
    return f"echarts.getInstanceByDom(document.getElementById('chart-{chart}'))"


def save_sweep(
    folder: Path, axes: Mapping[str, Sequence[Any]], settings: Sequence[str], failed: int = 0
) -> None:
    """A sweep's folder with a real run for each point, less those that are said to have failed."""
    points = []
    combined = list(product(*axes.values()))
    for at, values in enumerate(combined, 1):
        place = dict(zip(axes, values, strict=True))
        point: dict[str, Any] = {"id": f"{at:04}", "values": place, "state": "done", "failures": []}
        if at > len(combined) - failed:
            said = {"variant": "zeus", "seed": 2, "message": "a worker was killed"}
            point |= {"state": "failed", "failures": [said]}
        else:
            own = [f"{path}={json.dumps(value)}" for path, value in place.items()]
            done = scenarios.load("quickstart", [*settings, *own], seeds=[1, 2]).run()
            done.save(folder / "points" / f"{at:04}", with_page=False)
            about = done.manifest
        points.append(point)
    sweep = {
        "scenario": "quickstart",
        "question": "How does it depend on the values?",
        "baseline": "default",
        "seeds": [1, 2],
        "axes": {path: list(values) for path, values in axes.items()},
        "points": points,
    } | {key: about[key] for key in ("inputs", "modelled", "versions")}
    (folder / "sweep.json").write_text(json.dumps(sweep), encoding="utf-8")
    seal(folder)

"""Results in notebooks: a short `repr`, and the answer and the table of their page as HTML."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pytest

from wattkeeper import scenarios
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.notebook.colours import variant_colours
from wattkeeper.scenarios.report import render_page
from wattkeeper.scenarios.run.run import ScenarioResult

FEW = ["workload.recurrences=3", "workload.workloads=[image]"]


@pytest.fixture(scope="module")
def done() -> ScenarioResult:
    return scenarios.load("quickstart", FEW, seeds=2).run()


def test_scenarios_and_studies_are_shown_in_one_line(done: ScenarioResult, tmp_path: Path) -> None:
    loaded = scenarios.load("quickstart", FEW, seeds=2)
    assert repr(loaded) == "<RunnableScenario quickstart: 4 variants, 2 seeds>"
    assert repr(done) == "<ScenarioResult quickstart: 4 variants, 2 seeds, 24 jobs>"
    done.save(tmp_path / "out", with_page=False)
    saved = scenarios.read(tmp_path / "out")
    assert repr(saved) == "<SavedStudy quickstart: 4 variants, 2 seeds, 24 jobs>"
    assert saved._repr_html_() == done._repr_html_()


def test_a_study_displays_the_answer_and_the_table_of_its_page(done: ScenarioResult) -> None:
    shown, page = done._repr_html_(), render_page(done)
    assert len(shown) < 30_000
    for part in (r'<section id="answer">.*?</section>', r'<section id="variants">.*?</section>'):
        (found,) = re.findall(part, shown, re.DOTALL)
        assert found in page
        assert all(variant in found for variant in done.summary["variants"])
    assert not re.search(r"<(?:script|link|img|iframe)", shown)


def test_texts_of_a_scenario_are_no_markup(done: ScenarioResult) -> None:
    asked = {**done.manifest, "scenario": {**done.manifest["scenario"], "question": "<b>&?"}}
    shown = replace(done, manifest=cast(Manifest, asked))._repr_html_()
    assert "<h1>&lt;b&gt;&amp;?</h1>" in shown
    style = re.compile(r"<style>.*?</style>", re.DOTALL)
    ElementTree.fromstring(style.sub("", shown))


def test_colours_are_those_of_the_page(done: ScenarioResult) -> None:
    colours = variant_colours()
    assert len(colours) == len(set(colours)) == 8
    assert all(colour in render_page(done) for colour in colours)
    assert all(f"--v{n}: {colour};" in done._repr_html_() for n, colour in enumerate(colours) if n)

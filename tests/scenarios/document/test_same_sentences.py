"""Page, terminal and notebook show the same sentences."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests.conftest import Command, run_command
from tests.support.elastic import SCENARIO as ELASTIC
from tests.support.slurm_logs import draw_jobs, first_that_fits, write_sacct
from wattkeeper import scenarios
from wattkeeper.scenarios.cli.tables.document import print_document
from wattkeeper.scenarios.document.blocks import Document, Paragraph, plain
from wattkeeper.scenarios.document.comparisons.sweep import read_sweep_document
from wattkeeper.scenarios.document.study import describe_study
from wattkeeper.scenarios.notebook.display import DisplayedStudy
from wattkeeper.scenarios.report import render_page, render_sweep_page
from wattkeeper.scenarios.spec.loading import shipped

FEW = ["workload.recurrences=8", "workload.workloads=[image, recommendation]"]
SHIPPED = {
    "quickstart": FEW,
    "carbon-limits": FEW,
    "carbon-deadlines": ["workload.recurrences=4"],
    "elastic-losses": [],
    "mlperf-h100-b200": ["workload.recurrences=4"],
    "mlperf-pool": ["workload.recurrences=20"],
    "pipeline-clocks": ["workload.iterations=100"],
    "zoo-bandits": ["workload.recurrences=6"],
    "zoo-table": ["workload.models=20"],
}
FETCHED = {
    "bandit-league": ["sweep=null", "workload.recurrences=8"],
    "carbon-queue": [],
    "million-jobs": ["cluster.gpus=512"],
    "openb-placement": [],
    "philly-schedulers": [],
    "philly-zeus": ["workload.mapping.by=[gpus]"],
    "scheduler-pool": [],
    "zeus-eta": ["workload.recurrences=8"],
    "zeus-nsdi23": ["workload.recurrences=8"],
    "zeus-overlap": ["workload.trace=groups"],
    "zoo-capacity": [],
    "zoo-imgclsmob": ["variants.asbuilt=null"],
}
"""Shipped scenarios of traces that are fetched, with what keeps them short."""

SEARCHES: dict[str, list[str]] = {
    "zoo-digits": ["workload.models=3"],
    "zoo-ensemble": ["workload.members.count=4"],
    "zoo-search": [
        "workload.models=3",
        "workload.strategy.population=2",
        "workload.strategy.sample=2",
    ],
}
"""Shipped searches that really train, with what keeps them short."""

TRAINED = ("live-nightly", "live-smoke")
"""They cannot be simulated before they have run live."""


MAP = tuple(
    word
    for column in ("submit_time_s=submit_time", "duration_s=duration", "gpus=num_gpus")
    for word in ("--map", column)
)


def read_html(text: str) -> str:
    """The words of a page, with a hyphen before negative numbers."""
    shown = html.unescape(re.sub(r"<style>.*?</style>|<[^>]*>", "", text, flags=re.DOTALL))
    return squeeze(shown).replace("−", "-")


def squeeze(text: str) -> str:
    """A text without spaces, which folded lines and cells add or lack, and without backticks."""
    return re.sub(r"[\s`]+", "", text)


def sentences(document: Document, *, whole: bool) -> list[str]:
    """The sentences of the sections that all media show, or also of those for screens."""
    places = ("all", "screens") if whole else ("all",)
    return [
        squeeze(plain(block.text))
        for section in document.sections
        if section.place in places
        for block in section.blocks
        if isinstance(block, Paragraph)
    ]


def print_to_text(document: Document) -> str:
    out = io.StringIO()
    print_document(Console(file=out, width=100), document)
    return squeeze(out.getvalue())


def check(study: DisplayedStudy) -> None:
    document = describe_study(study)
    told = sentences(document, whole=True)
    page, cell = read_html(render_page(study)), read_html(study._repr_html_())
    terminal = print_to_text(document)
    assert document.sections[0].blocks[0].role == "lead"  # type: ignore[union-attr]
    assert len(told) > 1
    for sentence in told:
        assert sentence in page
        assert sentence in terminal
    for sentence in sentences(document, whole=False):
        assert sentence in cell


@pytest.mark.parametrize("name", SHIPPED)
def test_of_shipped_scenarios(name: str) -> None:
    check(scenarios.load(name, SHIPPED[name], seeds=2).run())


@pytest.fixture(scope="module")
def fetched_traces(zeus_traces: Path, shared: Path) -> Path:
    """The library of the Zeus traces, with small ones under the names of those that are fetched."""
    jobs = shared / "data/philly/slices/philly_1k.csv"
    data = shared / "data/openb"
    openb = (data / "openb_pod_list_default.csv", data / "openb_node_list_gpu_node.csv")
    models = shared / "data/modelkeeper"
    zoo = (models / "graphs", models / "workloads/torchcv_list.csv")
    imports: tuple[tuple[str | Path, ...], ...] = (
        ("csv", jobs, "--name", "philly", *MAP),
        ("csv", jobs, "--name", "million", *MAP),
        ("openb-2023", *openb, "--name", "openb"),
        ("modelkeeper", *zoo, "--skip-bad", "--name", "zoo-imgclsmob"),
    )
    for words in imports:
        run_command("traces", "import", *words, traces=zeus_traces, cwd=zeus_traces)
    return zeus_traces


@pytest.mark.parametrize("name", FETCHED)
def test_of_shipped_scenarios_of_fetched_traces(
    name: str, fetched_traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(fetched_traces))
    check(scenarios.load(name, FETCHED[name], seeds=1).run())


def test_no_shipped_scenario_is_left_out() -> None:
    assert {*SHIPPED, *FETCHED, *TRAINED, *SEARCHES} == set(shipped())


@pytest.mark.parametrize("name", SEARCHES)
def test_of_a_search(name: str, inside: Command, tmp_path: Path) -> None:
    for library in ("torch", "sklearn"):
        pytest.importorskip(library, reason="pip install 'wattkeeper[live,digits]'")
    short = [*SEARCHES[name], "workload.training.most_epochs=2"]
    words = [word for setting in short for word in ("--set", setting)]
    inside("run", name, "--seeds", "1", *words, "--out", "out")
    check(scenarios.read(tmp_path / "out"))


def test_of_elastic_jobs(tmp_path: Path) -> None:
    (tmp_path / "elastic.yaml").write_text(ELASTIC, encoding="utf-8")
    check(scenarios.load(str(tmp_path / "elastic.yaml")).run())


def test_of_a_study_of_a_log(inside: Command, tmp_path: Path) -> None:
    jobs = draw_jobs(150)
    write_sacct(tmp_path / "sacct.txt", jobs, first_that_fits(jobs))
    (tmp_path / "nodes.yaml").write_text("nodes: [{gpu: a100, count: 4, gpus: 8}]\n")
    rates = ("--price", "0.2", "--currency", "EUR", "--carbon", "350")
    said = inside(
        "study",
        "slurm",
        "sacct.txt",
        "--nodes",
        "nodes.yaml",
        "--out",
        "out",
        "--workers",
        "1",
        *rates,
    ).stdout
    assert said.splitlines()[-1] == "Page: out/results/report.html"
    study = scenarios.read(tmp_path / "out/results")
    check(study)
    for sentence in sentences(describe_study(study), whole=True):
        assert sentence in squeeze(said)


def test_of_a_sweep(inside: Command, tmp_path: Path) -> None:
    few = [word for setting in FEW for word in ("--set", setting)]
    sweep = ("--sweep", "objective.eta=0.2,0.8", "--seeds", "1", "--out", "out")
    said = squeeze(inside("run", "quickstart", *few, *sweep).stdout)
    document = read_sweep_document(tmp_path / "out")
    told = sentences(document, whole=True)
    page = read_html(render_sweep_page(tmp_path / "out"))
    cell = read_html(scenarios.read(tmp_path / "out")._repr_html_())
    assert len(told) > 2
    for sentence in told:
        assert sentence in page
        assert sentence in said
        assert sentence in cell

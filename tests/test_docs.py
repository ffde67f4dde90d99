"""The pages that list what the code defines list all of it, as it is defined."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from wattkeeper.policies.matching.benefit import FITTED
from wattkeeper.policies.parts import parts
from wattkeeper.policies.points.job import JOB_ATTRIBUTES, Job
from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.replan import ElasticView, Reshape
from wattkeeper.policies.points.retain import Retention, StoredModel
from wattkeeper.policies.points.views import (
    Configuration,
    Knobs,
    Measurement,
    Options,
    Outcome,
    Running,
    Start,
)
from wattkeeper.policies.registry import POINTS
from wattkeeper.scenarios.contract.new_policy import EXAMPLES
from wattkeeper.scenarios.spec.json_schema import json_schema
from wattkeeper.sim.cluster_results.registry import METRICS
from wattkeeper.sim.cluster_results.schemas import TABLES
from wattkeeper.sim.results.summary import VALUES
from wattkeeper.traces.formats import registry
from wattkeeper.traces.schema import KINDS, OPTIONAL

DOCS = Path(__file__).resolve().parents[1] / "docs"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def test_every_column_and_metric_of_the_results_is_listed() -> None:
    page = (DOCS / "results.md").read_text(encoding="utf-8").splitlines()
    expected = []
    for schema in (*TABLES.values(), VALUES):
        for column in schema:
            unit, doc = (column.metadata[key].decode() for key in (b"unit", b"doc"))
            expected.append(f"| `{column.name}` | `{column.type}` | {unit} | {doc} |")
    expected += [f"| `{name}` | {metric.unit} | {metric.doc} |" for name, metric in METRICS.items()]
    assert [line for line in page if line.startswith("| `")] == expected


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """The pages that are made, by name."""
    return {page.name: page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md")}


def test_the_pages_that_are_made_are_up_to_date(reference: dict[str, str], tmp_path: Path) -> None:
    """In a process of its own, in which no policies are registered but those installed."""
    subprocess.run([sys.executable, str(DOCS / "reference.py"), str(tmp_path)], check=True)
    made = {page.name: page.read_text(encoding="utf-8") for page in tmp_path.iterdir()}
    assert made.keys() == reference.keys()
    old = [name for name, text in made.items() if text != reference[name]]
    assert not old, f"docs/reference is not up to date ({', '.join(old)}): python docs/reference.py"


def test_the_reference_has_every_key_of_a_scenario(reference: dict[str, str]) -> None:
    schema, page = json_schema(), reference["scenario.md"]
    parts = {"": schema, **schema["$defs"]}
    for name, part in parts.items():
        if name.endswith("Config"):
            continue  # policies have a page of their own
        section = page.partition(f"\n## {name}\n")[2] if name else page
        rows = re.findall(
            r"^\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE
        )
        assert [row[0] for row in rows] == list(part["properties"]), name
        for key, kind, default, meaning in rows:
            assert kind.strip(), key
            assert meaning.strip(), f"{name}.{key} has no docstring"
            assert (default == "needed") == (key in part.get("required", ()))


def test_the_reference_has_every_policy_format_and_column(reference: dict[str, str]) -> None:
    for point in POINTS:
        for kind, config in parts(point, added=False).items():
            section = reference["policies.md"].partition(f"### `{point}: {kind}`")[2]
            section = section.partition("\n##")[0]
            assert " ".join((config.__doc__ or "").split()[:4]) in section
            for key in config.model_fields.keys() - {"kind"}:
                assert f"| `{key}` |" in section
    for name in registry():
        assert f"| `{name}` |" in reference["imports.md"]
    tables = [*TABLES.items(), ("metrics", VALUES)]
    tables += [table for kind in KINDS for table in (KINDS[kind] | OPTIONAL[kind]).items()]
    for name, schema in tables:
        rows = "\n".join(f"| `{column.name}` | `{column.type}` |" for column in schema)
        found = re.sub(r"(`) \|[^`\n]*$", r"\1 |", reference["files.md"], flags=re.MULTILINE)
        assert f"`{name}.parquet`" in found
        assert rows in found


def test_the_protocol_has_all_that_policies_see_and_answer(reference: dict[str, str]) -> None:
    page = reference["protocol.md"]
    shown = (
        Job,
        Options,
        Start,
        Running,
        Progress,
        Measurement,
        Outcome,
        Configuration,
        Knobs,
        ElasticView,
        Reshape,
        StoredModel,
        Retention,
    )
    for view in shown:
        section = page.partition(f"## `{view.__name__}`\n")[2].partition("\n##")[0]
        fields = getattr(view, "_fields", JOB_ATTRIBUTES)
        missing = [name for name in fields if f"| `{name}` | " not in section]
        assert not missing, f"{view.__name__}: {missing}"
    for point, (_, base, _) in POINTS.items():
        section = page.partition(f"### `{point}`\n")[2].partition("\n###")[0]
        for name in vars(base):
            assert name.startswith("_") or f"- `{name}" in section, name
        assert f"### `{point}: {EXAMPLES[point]}`" in page
    for name in ("draws", "needs_foresight", "moments", "signals", "rng", "now_s", "history"):
        assert f"`{name}" in page


@pytest.mark.parametrize("page", ["docs/concepts.md", "README.md"])
def test_pages_name_all_decision_points(page: str) -> None:
    text = (DOCS.parent / page).read_text(encoding="utf-8")
    paragraph = text.partition("*decision point")[2].partition("\n")[0]
    assert set(re.findall(r"`(\w+)`", paragraph)) == set(POINTS)


def test_every_metric_has_its_formula() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.+) \|$", page, re.MULTILINE)
    assert [(name, unit) for name, unit, _ in rows] == [
        (name, metric.unit) for name, metric in METRICS.items()
    ]


def test_what_a_zoo_saves_is_what_was_measured() -> None:
    page = (DOCS / "validation.md").read_text(encoding="utf-8")
    warm = json.loads((DOCS.parent / "sim/engine/warm_start.json").read_text(encoding="utf-8"))
    alone, threes = warm["error"]["held_out_seeds"], warm["error"]["held_out_threes"]
    saved = sum(seed["measured_saved"] for seed in alone) / len(alone)
    assert f"{100 * saved:.1f} % of work" in page
    first, second, third = (round(100 * abs(one["relative_error"])) for one in threes)
    assert f"off by {first}, {second} and {third} % of it" in page
    worst = max(round(100 * abs(one["relative_error"])) for one in alone)
    assert f"by up to {worst} %" in page


def test_what_a_parent_is_expected_to_save_is_what_the_code_says() -> None:
    page = (DOCS / "zoo.md").read_text(encoding="utf-8")
    [formula] = re.findall(r"^    (\S+ coverage .*)$", page, re.MULTILINE)
    numbers = [float(each.replace(" ", "")) for each in re.findall(r"[-+]? ?\d\.\d+", formula)]
    filled, kept, lost, equal, accuracy, new_head = FITTED
    assert numbers == [filled, kept, lost, equal, new_head]
    assert f"`relative` adds {accuracy} times" in page


@pytest.mark.parametrize("name", ["promises", "validation"])
def test_tests_named_in_pages_exist(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:(?:::|`, `)(test_\w+))?`", page)
    assert len(named) == page.count("tests/") > 5
    for path, function in named:
        text = (DOCS.parent / path).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in text


def test_links_between_pages_lead_somewhere() -> None:
    """From each page to a file of the checkout, and to a heading that it has."""
    pages = {page: page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}
    pages[DOCS.parent / "README.md"] = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    for notebook in DOCS.glob("*.ipynb"):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        pages[notebook] = "\n".join("".join(cell["source"]) for cell in cells)
    headings = {
        page: {slug(line) for line in HEADING.findall(text)} for page, text in pages.items()
    }
    for page, text in pages.items():
        for target, heading in LINK.findall(text):
            file = (page.parent / target).resolve() if target else page
            assert file.is_file(), f"{page} links to {target}"
            assert not heading or heading in headings[file], f"{page}: {target}#{heading}"


def slug(heading: str) -> str:
    """The name of a heading in links, as forges and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.slow
def test_pictures_show_the_answer_that_their_study_has_now(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    pytest.importorskip("playwright", reason="playwright is not installed")
    made = runpy.run_path(str(DOCS / "pictures.py"))
    answer = made["answer"](made["study"](tmp_path))
    assert "a year" in answer
    for name in made["VIEWS"]:
        with image.open(DOCS / f"pictures/{name}.png") as picture:
            assert picture.text["answer"] == answer, f"{name}.png is old: python docs/pictures.py"


@pytest.mark.slow
def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="sphinx is not installed: pip install 'wattkeeper[docs]'")
    made = tmp_path / "site"
    asked = [sys.executable, str(DOCS / "site.py"), str(made)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("index", "policy", "python", "reference/scenario"):
        text = (made / f"{page}.html").read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?:', text)
    policy = (made / "policy.html").read_text(encoding="utf-8")
    assert "share-60" in policy.partition("Results: results/live")[0].rpartition("<pre>")[2]

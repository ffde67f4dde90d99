"""The notebooks of `docs` hold what their cells give, and the recipes beside them run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

DOCS = Path(__file__).resolve().parents[1] / "docs"
NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))


def outputs(notebook: Path) -> list[list[dict[str, Any]]]:
    """The output of each code cell; pictures, which depend on fonts, without their content.

    Where there is HTML, that is what a reader sees.
    """
    found = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/html" in data:
                del data["text/plain"]
            if "image/png" in data:
                data["image/png"] = len(data["image/png"]) > 1000
        if cell["cell_type"] == "code":
            found.append(cell["outputs"])
    return found


def test_there_is_a_notebook() -> None:
    assert [path.name for path in NOTEBOOKS] == ["first-notebook.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_output_of_a_notebook_is_what_its_cells_give(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    content = json.loads(path.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
    copy.write_text(json.dumps(content), encoding="utf-8")
    command = [sys.executable, str(DOCS / "notebooks.py"), path.name]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert outputs(copy) == outputs(path), "python docs/notebooks.py executes it again"
    pictures = [one for cell in outputs(path) for one in cell if "image/png" in one.get("data", {})]
    assert len(pictures) > 2
    assert all(one["data"]["image/png"] for one in pictures)
    text = path.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def test_recipes_on_parquet_files_run(inside: Command, tmp_path: Path) -> None:
    """Those for DuckDB and polars, on the results of the page's commands."""
    absent = [name for name in ("duckdb", "polars") if not find_spec(name)]
    if absent:
        pytest.skip(f"{', '.join(absent)} of the extra `test` is not installed")
    page = (DOCS / "notebooks.md").read_text(encoding="utf-8")
    for line in re.findall(r"^\$ wattkeeper (.*)$", page, re.MULTILINE):
        inside(*line.split())
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    program = "\n".join(blocks)
    command = [sys.executable, "-c", f"import matplotlib\nmatplotlib.use('agg')\n{program}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    for expected in ("objective.eta", "energy_mj", "0003", "power_limit_w"):
        assert expected in done.stdout
    for name in ("zeus", "front", "energy"):
        assert b"/FontFile2" in (tmp_path / f"{name}.pdf").read_bytes()

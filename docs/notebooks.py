"""Executes the notebooks of this folder: `python docs/notebooks.py`, with matplotlib.

It runs the cells of each in a process of its own, as Jupyter does, and writes their output into the
file: text, what the last expression of a cell displays, and figures. `docs/site.py` makes a page of
each, and a test compares the output with what the cells give.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
DOTS_PER_INCH = 80


def execute(notebook: dict[str, Any]) -> None:
    """Run the code cells of a notebook one after the other, and replace their output."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    names: dict[str, object] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        cell["execution_count"] = number
        cell["outputs"] = _run_cell("".join(cell["source"]), names, number)


def _run_cell(source: str, names: dict[str, object], number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    result = None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            result = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if result is not None and not source.rstrip().endswith(";"):
        about = {"data": _display(result), "metadata": {}, "output_type": "execute_result"}
        outputs.append({**about, "execution_count": number})
    return outputs + [
        {"data": {"image/png": picture}, "metadata": {}, "output_type": "display_data"}
        for picture in _take_figures()
    ]


def _display(result: object) -> dict[str, list[str]]:
    """What a notebook shows of a value, by media type."""
    data = {"text/plain": repr(result).splitlines(keepends=True)}
    to_html = getattr(result, "_repr_html_", None)
    if to_html is not None:
        data["text/html"] = to_html().splitlines(keepends=True)
    return data


def _take_figures() -> list[str]:
    """Close all figures, and return them as PNG in base 64."""
    from matplotlib import pyplot

    pictures = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        figure = pyplot.figure(number)
        figure.savefig(file, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        pictures.append(base64.b64encode(file.getvalue()).decode())
    pyplot.close("all")
    return pictures


def to_page(notebook: dict[str, Any], pictures: Path) -> str:
    """A notebook as Markdown for Sphinx; its pictures are written into a folder beside it."""
    parts = []
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                path = pictures / f"cell-{number}-{len(parts)}.png"
                path.write_bytes(base64.b64decode(data["image/png"]))
                parts.append(f"![Figure of the cell above]({pictures.name}/{path.name})")
            elif "text/html" in data:
                parts.append(f"```{{raw}} html\n{''.join(data['text/html'])}\n```")
            else:
                text = output.get("text") or data["text/plain"]
                parts.append(f"```text\n{''.join(text).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def read(path: Path) -> dict[str, Any]:
    """The content of a notebook."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def write(path: Path, notebook: dict[str, Any]) -> None:
    """Write a notebook as Jupyter does."""
    text = json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def main(paths: list[str]) -> None:
    """Execute a notebook here, or each one of the folder in an empty folder of its own."""
    for name in paths:
        notebook = read(Path(name))
        execute(notebook)
        write(Path(name), notebook)
    for path in () if paths else sorted(DOCS.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(Path(__file__).resolve()), str(path)]
            subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Makes the site: `python docs/site.py [FOLDER]`, by default `build/docs`; needs no network.

The pages of `docs/` stay as they are: what Sphinx reads, with the pages of `reference.py`, is
assembled in a folder of its own. Commands and Python of the pages in `EXECUTED` run while the site
is made, and their output stands under them.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from contextlib import chdir, redirect_stdout
from pathlib import Path
from shutil import copytree

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

EXECUTED = ("index.md", "python.md", "policy.md", "sources.md")
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$\n", re.MULTILINE | re.DOTALL)
SAVED = re.compile(
    r"Save this as `([^`]+)`[^\n]*\n+```(?:yaml|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
SECTIONS = {
    "First steps": (
        "index",
        "install",
        "first-log",
        "first-policy",
        "first-training",
        "first-notebook",
        "concepts",
    ),
    "Guides": ("scenarios", "study", "cluster-log", "going-live", "python", "notebooks"),
    "Studies": (
        "report",
        "sweeps",
        "compare",
        "timeline",
        "results",
        "metrics",
        "bench",
        "validation",
        "promises",
    ),
    "Input": (
        "formats",
        "formats-clusters",
        "fetch",
        "generate",
        "clusters",
        "power-model",
        "electricity",
        "signals",
        "power-caps",
        "losses",
        "elastic",
        "elastic-policy",
        "forecasts",
        "chase",
        "carbon-queue",
        "perseus",
        "frugal",
        "record",
        "share-a-profile",
    ),
    "Live": ("live", "session", "live-pipeline", "live-elastic", "devices", "zoo", "zoo-bandits"),
    "Extend": ("policy", "sources"),
    "Reference": (
        "reference/scenario",
        "reference/policies",
        "reference/protocol",
        "reference/files",
        "reference/imports",
    ),
}
"""Pages by section; those that are not there are left out, others come under `More`."""


def assemble_pages(source: Path) -> None:
    """Write all pages, with the output of what they show, into a folder for Sphinx."""
    import reference
    from notebooks import read, to_page

    reference.write_pages(source / "reference")
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if page.name in EXECUTED:
            text = execute(text)
        text = text.replace(".ipynb)", ".md)")
        (source / page.name).write_text(text, encoding="utf-8")
    copytree(DOCS / "pictures", source / "pictures")
    for path in sorted(DOCS.glob("*.ipynb")):
        text = to_page(read(path), source / "pictures")
        (source / path.with_suffix(".md").name).write_text(text, encoding="utf-8")
    index = source / "index.md"
    index.write_text(index.read_text(encoding="utf-8") + contents(source), encoding="utf-8")
    (source / "conf.py").write_bytes((DOCS / "conf.py").read_bytes())


def contents(source: Path) -> str:
    """The navigation: a table of contents a section."""
    names = {str(page.relative_to(source).with_suffix("")) for page in source.rglob("*.md")}
    listed = {page for pages in SECTIONS.values() for page in pages}
    sections = {**SECTIONS, "More": tuple(sorted(names - listed))}
    text = ""
    for title, pages in sections.items():
        present = [page for page in pages if page in names and page != "index"]
        if present:
            lines = "\n".join(present)
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n"
    return text


def execute(page: str) -> str:
    """Run the commands and the Python of a page, and put their output under them.

    Raises:
        SystemExit: If one fails.
    """
    with tempfile.TemporaryDirectory(prefix="wattkeeper-docs-") as folder, chdir(folder):
        for name, text in SAVED.findall(page):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text, encoding="utf-8")
        names: dict[str, object] = {"__name__": "__main__"}

        def run(match: re.Match[str]) -> str:
            kind, block = match.groups()
            if kind == "python" and page[: match.start()].rstrip().endswith("`:"):
                return match[0]  # a file, saved before
            output = _python(block, names) if kind == "python" else _commands(block)
            return match[0] + (f"\n```text\n{output.rstrip()}\n```\n" if output.strip() else "")

        return BLOCK.sub(run, page)


def _commands(block: str) -> str:
    output = ""
    for line in block.splitlines():
        words = shlex.split(line.removeprefix("$ "))
        if words[0] != "wattkeeper":
            continue
        env = os.environ | {
            "COLUMNS": "110",
            "WATTKEEPER_TRACES": str(Path("traces").resolve()),
            "WATTKEEPER_STATE": str(Path("state").resolve()),
            "TMPDIR": tempfile.gettempdir(),
        }
        command = [sys.executable, "-m", "wattkeeper.scenarios", *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if done.returncode:
            raise SystemExit(f"{line}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        output += done.stdout.replace(str(Path.cwd()), ".")
    return output


def _python(block: str, names: dict[str, object]) -> str:
    output = io.StringIO()
    try:
        with redirect_stdout(output):
            exec(compile(block, "example", "exec"), names)
    except Exception:
        raise SystemExit(f"an example fails:\n{block}\n{traceback.format_exc()}") from None
    return output.getvalue()


def build(target: Path) -> int:
    """Make the site; Sphinx's exit code, not 0 if there was a warning."""
    from sphinx.cmd.build import main

    with tempfile.TemporaryDirectory(prefix="wattkeeper-site-") as scratch:
        source = Path(scratch) / "pages"
        assemble_pages(source)
        return main(
            [
                "-q",
                "-W",
                "--keep-going",
                "-n",
                "-E",
                "-b",
                "html",
                "-d",
                f"{scratch}/trees",
                str(source),
                str(target),
            ]
        )


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else DOCS.parent / "build/docs")))

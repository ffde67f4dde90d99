"""Makes the pictures of the page in docs/report.md: `python docs/pictures.py`, with Chromium.

Each has the answer of its page in its metadata: `tests/test_docs.py` compares it with a new study.
"""

import re
import shutil
import subprocess
import sys
from html import unescape
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parent / "pictures"
NODES = "nodes: [{gpu: a100, count: 8, gpus: 8}]\npue: 1.3\n"
RATES = ("--price", "0.20", "--currency", "EUR", "--carbon", "350")
COLUMNS = ["job_id", "submit_time_s", "duration_s", "gpus"]
VIEWS = {
    "page": ("header", 1000, 800),
    "energy": ("#energy", 1000, 620),
    "phone": ("header", 390, 760),
}
"""Element at the top, width and height (pixels) of each picture."""


def main() -> None:
    """Study generated jobs, and take pictures of the page."""
    with TemporaryDirectory() as folder:
        take_pictures(study(Path(folder)))


def study(folder: Path) -> Path:
    """Study 3,000 generated jobs on 64 GPUs in a folder; the page."""
    made = ["traces", "generate", "jobs", "--jobs", "3000", "--load", "0.8", "--gpus", "64"]
    run(folder, *made, "--name", "made")
    jobs = pd.read_parquet(folder / "made/jobs.parquet", columns=COLUMNS)
    jobs.to_csv(folder / "generated.csv", index=False)
    (folder / "nodes.yaml").write_text(NODES, encoding="utf-8")
    run(folder, "study", "csv", "generated.csv", "--nodes", "nodes.yaml", *RATES, "--out", "study")
    return folder / "study/results/report.html"


def run(folder: Path, *words: str) -> None:
    """A command of wattkeeper, with the folder as its library."""
    command = [sys.executable, "-m", "wattkeeper.scenarios", *words]
    subprocess.run(command, cwd=folder, check=True, env={"WATTKEEPER_TRACES": str(folder)})


def answer(report: Path) -> str:
    """The sentences of a page's answer, as text."""
    text = report.read_text(encoding="utf-8")
    sentences = text.partition('id="answer">')[2].partition("<table")[0]
    return " ".join(unescape(re.sub("<[^>]*>", " ", sentences)).split())


def take_pictures(report: Path) -> None:
    """Take the pictures of `VIEWS`, of few colours, which halves their size."""
    PICTURES.mkdir(exist_ok=True)
    told = PngInfo()
    told.add_text("answer", answer(report))
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, (element, width, height) in VIEWS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(report.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            top = page.locator(element).bounding_box()
            clip = {"x": 0, "y": max(0, top["y"] - 12), "width": width, "height": height}
            taken = Image.open(BytesIO(page.screenshot(clip=clip, full_page=True)))
            few = taken.convert("RGB").quantize(
                256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
            )
            few.save(PICTURES / f"{name}.png", pnginfo=told, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()

"""Makes the pictures of the page in docs/report.md: `python docs/pictures.py`, with Chromium."""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parent / "pictures"
SLEEP = "{cluster: {sleep: {after_s: 600, power_w: 5, wake_s: 120}}}"
SETTINGS = (
    "workload.trace=made",
    "cluster.gpus=64",
    "electricity={price: 0.21, carbon: 380, currency: EUR}",
    f"variants.sleeping={SLEEP}",
)
VIEWS = {
    "page": ("header", 1000, 600),
    "energy": ("#energy", 1000, 620),
    "phone": ("header", 390, 760),
}
"""Element at the top, width and height (pixels) of each picture."""


def main() -> None:
    """Run a shipped scenario on generated jobs, and take pictures of its page."""
    command = [sys.executable, "-m", "wattkeeper.scenarios"]
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    made = ["traces", "generate", "jobs", "--jobs", "3000", "--load", "0.8", "--gpus", "64"]
    run = ["run", "philly-schedulers", *words, "--out", "out"]
    with TemporaryDirectory() as folder:
        for arguments in ([*made, "--name", "made"], run):
            subprocess.run(
                [*command, *arguments], cwd=folder, check=True, env={"WATTKEEPER_TRACES": folder}
            )
        take_pictures(Path(folder) / "out/report.html")


def take_pictures(report: Path) -> None:
    """Take the pictures of `VIEWS`."""
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, (element, width, height) in VIEWS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(report.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            top = page.locator(element).bounding_box()
            clip = {"x": 0, "y": max(0, top["y"] - 12), "width": width, "height": height}
            page.screenshot(path=PICTURES / f"{name}.png", clip=clip, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()

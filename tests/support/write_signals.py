"""Commands that replace a folder, with a signal at some call; a script of `signals`."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path

from tests.support.signals import SIGNALS, attempt
from wattkeeper.scenarios.cli.main import main as wattkeeper
from wattkeeper.traces.files.atomic import is_leftover

Content = dict[str, str]
MODULES = "modules.json"
PRELOADED = ("wattkeeper", "pyarrow", "numpy")
LAST = 60
"""Calls in which a folder takes its place: every second signal is drawn from them."""


def call(*arguments: str) -> None:
    """Run a command with its output in a file."""
    output = os.open("output", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    wattkeeper(list(arguments))


def note_modules(*arguments: str) -> None:
    """Run a command, and write the names of the modules that it loaded."""
    try:
        call(*arguments)
    finally:
        names = [name for name in sys.modules if name.startswith(PRELOADED)]
        Path(MODULES).write_text(json.dumps(names))


def content(folder: Path) -> Content | None:
    """Digests of a folder's files by name, without what differs in each run; None if it is gone."""
    if not folder.exists():
        return None
    files = {}
    for path in folder.iterdir():
        data = path.read_bytes()
        if path.name == "manifest.json":
            sums = (folder / "SHA256SUMS").read_text()
            assert f"{sha256(data).hexdigest()}  manifest.json" in sums, "of another run"
            data = str(json.loads(data)["results_digest"]).encode()
        elif path.name == "SHA256SUMS":
            data = b"".join(row for row in data.splitlines(True) if b"manifest.json" not in row)
        files[path.name] = sha256(data).hexdigest()
    return files


def main(
    folder: str, kills: int, seed: int, versions: list[list[str]], reader: list[str], place: str
) -> dict[str, int]:
    """Counts of endings of so many commands; an error says what they left.

    Args:
        folder: Where they run.
        kills: How many.
        seed: Of what is drawn.
        versions: Arguments of commands that replace the place, each by something else.
        reader: Arguments of a command that reads it.
        place: What they replace.
    """
    os.chdir(folder)
    luck, path = random.Random(seed), Path(place)
    run: list[Callable[[], None]] = [partial(call, *arguments) for arguments in versions]
    for arguments in (versions[0], reader):
        outcome = attempt(partial(note_modules, *arguments))
        assert outcome.code == 0, Path("output").read_text()
        for name in json.loads(Path(MODULES).read_text()):
            importlib.import_module(name)
    whole, calls = [], []
    for replace in run:
        outcome = attempt(replace)
        assert outcome.code == 0, Path("output").read_text()
        whole.append(content(path))
        calls.append(outcome.calls)
    assert whole[0] != whole[1]
    last = whole[-1]
    made: Counter[str] = Counter(calls=min(calls))
    for number in range(kills):
        which, name = luck.randrange(len(run)), luck.choice(SIGNALS)
        exchange, first = luck.random() < 0.5, luck.choice((1, calls[which] - LAST))
        at = luck.randint(first, calls[which])
        about = f"{number}: {name.name} at {at} of {versions[which]}, exchange: {exchange}"
        code = attempt(run[which], at, name, exchange=exchange).code
        assert code in (0, 130 if name == signal.SIGINT else -name), (about, code)
        made[name.name if code else "undisturbed"] += 1
        found = content(path)
        if found is None:
            assert not exchange, about
            assert attempt(partial(call, *reader)).code == 0, about
            found = content(path)
            made["restored by the next command"] += 1
        assert found in (last, whole[which]), about
        assert code != 0 or found == whole[which], about
        made["new version"] += found == whole[which] != last
        last = found
        beside = {each.name for each in path.parent.iterdir() if each.name.startswith(".")}
        tokens = {each.split(".")[-2] for each in beside if is_leftover(each)}
        # Of its scratch folder, what it writes, and what that superseded in two steps.
        assert len(tokens) <= 3, (about, beside)
    assert attempt(run[0]).code == 0
    assert content(path) == whole[0]
    left = [each.name for each in path.parent.iterdir() if is_leftover(each.name)]
    assert left == [], left
    assert "Traceback" not in Path("output").read_text()
    return dict(made)

"""What lies beside the results of a sweep may be another user's; nothing of it is executed."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.strangers import NOBODY, as_root, give_away, modes
from tests.support.sweeps import SMALL, units
from wattkeeper import scenarios
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.run.unit import run_unit
from wattkeeper.scenarios.sweep import run
from wattkeeper.scenarios.sweep.cache import MARK
from wattkeeper.scenarios.sweep.unit_file import decode_unit, encode_unit
from wattkeeper.sim.results.digest import digest_tables

SWEEP = ("quickstart", *SMALL, "--seeds", "2", "--sweep", "objective.eta=0,1", "--out", "out")


class Evil:
    """What runs a command where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def plant(folder: Path, mark: Path) -> None:
    """Make the folder of an unfinished sweep whose files make a folder when they are unpickled."""
    folder.mkdir(mode=0o777, exist_ok=True)
    (folder / MARK).touch()
    data = pickle.dumps(Evil(mark))
    whole = hashlib.sha256(data).digest() + data
    for name in ("policies", "policies.json"):
        (folder / name).write_bytes(whole)


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777])
def test_the_sweep_of_another_user_is_refused(inside: Command, tmp_path: Path, mode: int) -> None:
    plant(folder := tmp_path / "out.sweep", tmp_path / "run")
    folder.chmod(mode)
    give_away(folder)
    before = modes(folder)
    said = inside("run", *SWEEP, code=2).stderr
    assert_states(said, str(folder), f"user {NOBODY}", "name another folder (--out)")
    assert modes(folder) == before
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "out").exists()


def test_a_sweep_that_others_may_write_is_refused(inside: Command, tmp_path: Path) -> None:
    plant(folder := tmp_path / "out.sweep", tmp_path / "run")
    folder.chmod(0o777)
    assert_states(inside("run", *SWEEP, code=2).stderr, str(folder), "(mode 0777)")
    assert not (tmp_path / "run").exists()


def test_a_link_to_a_sweep_is_refused(inside: Command, tmp_path: Path) -> None:
    plant(tmp_path / "elsewhere", tmp_path / "run")
    (tmp_path / "out.sweep").symlink_to("elsewhere")
    assert_states(inside("run", *SWEEP, code=2).stderr, "out.sweep", "is a link")
    assert (tmp_path / "elsewhere" / MARK).exists()


@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe", "other name"])
def test_a_lock_that_is_no_file_is_refused(inside: Command, tmp_path: Path, kind: str) -> None:
    (folder := tmp_path / "out.sweep").mkdir(mode=0o700)
    (target := tmp_path / "target").write_text("mine")
    if kind == "pipe":
        os.mkfifo(folder / MARK)
    elif kind == "other name":
        os.link(target, folder / MARK)
    else:
        (folder / MARK).symlink_to(target if kind == "link" else "nothing")
    said = inside("run", *SWEEP, code=2).stderr
    assert_states(said, str(folder / MARK), "remove it")
    assert target.read_text() == "mine"
    assert os.path.lexists(folder / MARK)
    assert not (folder / "nothing").exists()


def interrupt(inside: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a sweep with all its units, each in a file of its own."""

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "assemble_point", killed)
        inside("run", *SWEEP, code=130)
    assert (folder / MARK).exists()


def test_nothing_in_a_sweep_is_unpickled(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even in a folder of this user: another one may have been let in before."""
    folder = tmp_path / "out.sweep"
    monkeypatch.setattr(run, "LONGEST_S", 0.0)
    interrupt(inside, folder, monkeypatch)
    assert units(folder)
    plant(folder, tmp_path / "run")
    data = pickle.dumps(Evil(tmp_path / "run"))
    for path in folder.rglob("[0-9]*-[0-9]*"):
        path.write_bytes(data)
    inside("run", *SWEEP)
    assert not (tmp_path / "run").exists()
    assert not folder.exists()


def test_a_sweep_is_for_its_user_alone(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        monkeypatch.setattr(run, "LONGEST_S", 0.0)
        interrupt(inside, tmp_path / "out.sweep", monkeypatch)
    finally:
        os.umask(before)
    found = modes(tmp_path / "out.sweep")
    assert found.pop(".") == "0700"
    assert {mode for name, mode in found.items() if "/" in name or "." in name} == {"0600"}


@as_root
@pytest.mark.parametrize("kind", ["a file", "a link", "a pipe", "another name"])
def test_a_unit_that_is_not_ours_is_not_read(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder, secret = tmp_path / "out.sweep", tmp_path / "secret"
    secret.write_text("secret")
    monkeypatch.setattr(run, "LONGEST_S", 0.0)
    interrupt(inside, folder, monkeypatch)
    unit = next(folder.rglob("[0-9]*-[0-9]*"))
    if kind == "a file":
        give_away(unit)
    else:
        unit.unlink()
        make = {"a link": unit.symlink_to, "another name": unit.hardlink_to}
        os.mkfifo(unit) if kind == "a pipe" else make[kind](secret)
    assert_states(inside("run", *SWEEP, code=2).stderr, str(unit), "remove it")
    assert secret.read_text() == "secret"
    unit.unlink()
    inside("run", *SWEEP)


@pytest.mark.parametrize("name", ["quickstart", "elastic-losses"])
def test_a_unit_comes_back_from_its_file(name: str) -> None:
    settings = ["seeds=1", *SMALL[1::2]] if name == "quickstart" else ["seeds=1"]
    loaded = scenarios.load(name, settings)
    inputs = read_inputs(loaded).runs
    spec = loaded.runs[-1]
    unit = run_unit(spec, inputs[spec.variant.name])
    again = decode_unit(memoryview(encode_unit(unit)))
    assert not isinstance(unit.result, Exception)
    assert not isinstance(again.result, Exception)
    assert again.result.tables == unit.result.tables
    assert digest_tables(again.result.tables) == unit.result.digest == again.result.digest
    for part in ("metrics", "by"):
        assert json.dumps(getattr(again.result, part)) == json.dumps(getattr(unit.result, part))
    assert json.dumps(again.result.account.metrics()) == json.dumps(unit.result.account.metrics())
    assert again.result.account.window == unit.result.account.window
    assert (again.result.variant, again.result.seed, again.result.events, again.wall_s) == (
        unit.result.variant,
        unit.result.seed,
        unit.result.events,
        unit.wall_s,
    )

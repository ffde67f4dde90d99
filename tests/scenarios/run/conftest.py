"""A run of quickstart that tests of this room share."""

from __future__ import annotations

import pytest

from tests.conftest import run_command
from tests.support.runs import QUICK, Ran


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    home = tmp_path_factory.mktemp("quickstart")
    done = run_command("run", *QUICK, "--out", "out", traces=home / "library", cwd=home)
    assert sorted(path.name for path in home.iterdir()) == ["out"]
    return Ran(home / "out", done.stdout, done.stderr)

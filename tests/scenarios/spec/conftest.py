"""A scenario file, and the problems of a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scenario_files import Refuse
from wattkeeper.policies.errors import ScenarioError
from wattkeeper.scenarios.spec.loading import load


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


@pytest.fixture
def refuse(path: Path) -> Refuse:
    """Loads a bad scenario; gives place (line:column, or the --set) and message of each problem."""

    def problems(content: str | bytes, *overrides: str) -> list[tuple[str, str]]:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(ScenarioError) as caught:
            load(str(path), overrides)
        found = []
        for problem in caught.value.problems:
            assert "\n" not in problem.message
            found.append((problem.where.removeprefix(f"{path}:"), problem.message))
        return found

    return problems

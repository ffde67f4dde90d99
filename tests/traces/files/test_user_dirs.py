"""Where the user's folders are."""

from collections.abc import Callable
from pathlib import Path

import pytest

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.traces.files.user_dirs import library_folder, state_folder

FOLDERS = [
    (library_folder, "WATTKEEPER_TRACES", "XDG_CACHE_HOME", ".cache", "wattkeeper/traces"),
    (state_folder, "WATTKEEPER_STATE", "XDG_STATE_HOME", ".local/state", "wattkeeper"),
]


@pytest.mark.parametrize(("folder", "variable", "xdg", "default", "ours"), FOLDERS)
def test_environment_variables_precede_the_home_directory(
    folder: Callable[[], Path],
    variable: str,
    xdg: str,
    default: str,
    ours: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(xdg, str(tmp_path / "xdg"))
    monkeypatch.setenv(variable, str(tmp_path / "own"))
    assert folder() == tmp_path / "own"
    monkeypatch.delenv(variable)
    assert folder() == tmp_path / "xdg" / ours
    monkeypatch.delenv(xdg)
    assert folder() == tmp_path / "home" / default / ours


@pytest.mark.parametrize(("folder", "variable"), [each[:2] for each in FOLDERS])
def test_without_a_home_directory_the_error_names_the_variable(
    folder: Callable[[], Path], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> object:
        raise KeyError(uid)

    for name in (variable, "HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)  # as for a user id that no user has
    with pytest.raises(EnvironmentLacks, match=variable):
        folder()

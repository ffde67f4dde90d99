"""The folder of a scenario's live runs, and its mark: which scenario, and whether it is done."""

import json
import os
import shutil
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, NotRequired, TypedDict, cast

from wattkeeper.policies.errors import StoreError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.policy_files import PolicyFile, list_changes
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.private import (
    check_own_tree,
    list_names,
    make_private_folder,
    open_own_folder,
    read_own_file,
)
from wattkeeper.traces.files.user_dirs import state_folder

MARK: Final = "wattkeeper-live.json"
"""Name of the file that marks a folder of live runs."""
OPTION: Final = "--out"


class Mark(TypedDict):
    """The digest of the scenario that runs in a folder, and whether its runs are over.

    Attributes:
        digest: The digest.
        done: Whether they are over.
        devices: What the runs were begun with; absent where no script trains.
        policies: Texts of the files of policies, by name.
    """

    digest: str
    done: bool
    devices: NotRequired[Json]
    policies: NotRequired[dict[str, str]]


def read_devices(folder: Path) -> Json | None:
    """The devices with which unfinished runs in a folder were begun; None if there are none.

    A training that outlived its controller still controls them: they cannot be examined again.

    Raises:
        StoreError: If anything in the folder belongs to another user, or others may write it.
    """
    if os.path.lexists(folder):
        check_own_tree(folder, OPTION)
    try:
        mark = _read(folder)
    except (OSError, ValueError, RecursionError):
        return None
    return None if mark["done"] else mark.get("devices")


def open_folder(loaded: LoadedScenario, folder: Path, devices: Json | None = None) -> bool:
    """Make the folder of a scenario's live runs, or continue what is in it.

    A run may resume with another `live.lease_s`, as for a script that starts slowly. `devices` are
    kept for runs that resume.

    Returns:
        Whether it continues.

    Raises:
        StoreError: If it holds something else, or unfinished runs of another scenario, a file of
            policies changed, anything in it belongs to another user, or others may write it; or
            if the state folder is not this user's alone. Nothing is changed then.
    """
    files = loaded.document.policy_files or ()
    resolved = loaded.scenario.model_dump_json(exclude={"live": {"lease_s"}})
    digest = sha256(resolved.encode()).hexdigest()
    state_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(folder):
        check_own_tree(folder, OPTION)
    else:
        make_private_folder(folder)
    descriptor = open_own_folder(folder, OPTION)
    try:
        goes_on = bool(list_names(descriptor)) and _goes_on(folder, digest, files)
        os.fchmod(descriptor, 0o700)  # made by the user, or by an older wattkeeper
        if goes_on:
            return True
        for name in list_names(descriptor):  # the mark goes last: it may be interrupted
            if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    mark = Mark(digest=digest, done=False, policies={file.name: file.source for file in files})
    if devices is not None:
        mark["devices"] = devices
    _write(folder, mark)
    return False


def _goes_on(folder: Path, digest: str, files: Sequence[PolicyFile]) -> bool:
    """Whether unfinished runs of a scenario of that digest are in a folder; False: they are done.

    Raises:
        StoreError: See `open_folder`.
    """
    try:
        mark = _read(folder)
    except (OSError, ValueError, RecursionError):
        raise StoreError(
            f"{folder} holds no live runs of wattkeeper: name another folder (--out)"
        ) from None
    if mark["done"]:
        return False
    if mark["digest"] != digest:
        raise StoreError(
            f"{folder} holds an unfinished run of another scenario, or with other settings: "
            "finish it as it was begun, remove the folder, or name another one (--out)"
        )
    for place in list_changes(files, mark.get("policies", {})):
        raise StoreError(
            f"this line is not what it was when the unfinished run in {folder} began: "
            "restore the file, remove the folder, or name another one (--out)",
            place,
        )
    return True


def mark_done(folder: Path) -> None:
    """Note that the runs in a folder are over: the next ones begin anew."""
    _write(folder, {"digest": _read(folder)["digest"], "done": True})


def _read(folder: Path) -> Mark:
    mark = json.loads(read_own_file(folder / MARK))
    known = isinstance(mark, dict) and isinstance(mark.get("digest"), str)
    if not known or not isinstance(mark.get("done"), bool):
        raise ValueError("found no digest of a scenario, or not whether it is done")
    return cast(Mark, mark)


def _write(folder: Path, mark: Mark) -> None:
    with replace_file(folder / MARK, private=True) as fresh:
        fresh.write_text(json.dumps(mark), encoding="utf-8")

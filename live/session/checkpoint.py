"""The state of a training that was told to stop, in a file."""

import json
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Protocol

from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.private import make_private_folder, read_own_file

PARENT: Final = "wattkeeper.parent"
"""Key of the parent in a zoo; no keyword argument can have this name."""


class Checkpointable(Protocol):
    """What a session saves and restores: a model, an optimizer, anything with a state."""

    def state_dict(self) -> Any:
        """Its state: tensors and plain values, or JSON values where there is no torch."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Take a state over."""


def save(path: Path, objects: Mapping[str, Checkpointable], parent: int | None = None) -> None:
    """Save the states of objects by name; the file appears whole or not at all.

    `parent` is the number of the model of a zoo that the training started from, if it did.

    Raises:
        InputError: If a state is not of JSON values, and torch, which could save it, is not loaded.
        EnvironmentLacks: If the file cannot be written.
    """
    states = {name: each.state_dict() for name, each in objects.items()}
    if parent is not None:
        states[PARENT] = parent
    try:
        make_private_folder(path.parent)
        with replace_file(path, private=True) as fresh:
            if torch := sys.modules.get("torch"):
                torch.save(states, fresh)
            else:
                fresh.write_text(json.dumps(states), encoding="utf-8")
    except OSError as error:
        raise EnvironmentLacks(f"cannot write {path}: {error.strerror or error}") from error
    except TypeError as error:
        raise InputError(
            f"the state of {', '.join(states)} is not of JSON values ({error}), and torch is not "
            "loaded: let state_dict give numbers, strings, lists and dictionaries"
        ) from error


def restore(path: Path, objects: Mapping[str, Checkpointable]) -> int | None:
    """Give objects the states that were saved under their names; no code of the file is run.

    Returns:
        The parent that was saved with them.

    Raises:
        InputError: If the file is damaged, of other objects, or not of this user.
    """
    content = read_own_file(path)
    try:
        if content.startswith(b"{"):
            states = json.loads(content)
        else:
            import torch

            states = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
        for name, each in objects.items():
            each.load_state_dict(states[name])
    except Exception as error:
        raise InputError(
            f"the state saved in {path} does not fit ({type(error).__name__}: {error}): remove the "
            "file, and the training starts over"
        ) from error
    parent: int | None = states.get(PARENT)
    return parent

"""The state of a training that was told to stop, in a file."""

import copy
import json
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Protocol

from wattkeeper.live.session.distributed import is_leader
from wattkeeper.live.wire.messages import Assignment
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


class KeptObjects:
    """The objects of a training whose states are saved if it is stopped.

    Attributes:
        restored: Whether they have the states of a training that was stopped.
        parent: Number of the model of a zoo that the training started from; None: of none.
    """

    def __init__(self) -> None:
        self.restored = False
        self.parent: int | None = None
        self._objects: dict[str, Checkpointable] = {}

    def keep(self, objects: Mapping[str, Checkpointable], assignment: Assignment) -> bool:
        """Keep these from now on; whether they were restored, since the training continues.

        Raises:
            InputError: If the saved state does not fit.
        """
        self._objects = dict(objects)
        self.restored = continues(assignment)
        if self.restored:
            self.parent = restore(Path(str(assignment.checkpoint)), objects)
        return self.restored

    def save(self, assignment: Assignment) -> bool:
        """Save their states, if there are any; whether they are saved, by any process."""
        if not self._objects or assignment.checkpoint is None:
            return False
        if is_leader():
            save(Path(assignment.checkpoint), self._objects, self.parent)
        return True

    def copy_states(self) -> dict[str, Any]:
        """Copies of their present states, by name."""
        return {name: copy.deepcopy(each.state_dict()) for name, each in self._objects.items()}

    def put_back(self, states: Mapping[str, Any]) -> None:
        """Give them states that were copied."""
        for name, state in states.items():
            self._objects[name].load_state_dict(state)


def continues(assignment: Assignment) -> bool:
    """Whether an attempt was stopped, and saved its state."""
    path = assignment.checkpoint
    return assignment.time_done_s > 0 and path is not None and Path(path).exists()


class NoModel:
    """The model of a session whose script has not called `warm_start`: no zoo takes it."""

    def check_zoo(self, assignment: Assignment) -> None:
        """Refuse a run whose zoo waits for the model.

        Raises:
            InputError: If it has a zoo.
        """
        if assignment.zoo is not None and is_leader():
            raise InputError(
                "the run has a zoo: call warm_start() before epochs(), so that the model can start "
                "from others and enter the zoo"
            )

    def enter_zoo(self, accuracy: float | None, parent: int | None) -> str:
        """Do nothing, and refuse nothing."""
        return ""

"""Values that processes of a training give each other as JSON: nothing that they get is run."""

import json
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from wattkeeper.policies.errors import EnvironmentLacks


def encode(value: object) -> bytes:
    """A value of numbers, texts, lists, mappings, named tuples and models of pydantic."""
    return json.dumps(value, default=_dump).encode()


def _dump(model: BaseModel) -> Any:
    return model.model_dump(mode="json", round_trip=True)


def decode(data: bytes, kind: Any) -> Any:
    """The value of `encode`, of a type.

    Raises:
        EnvironmentLacks: If it is of another one.
    """
    try:
        return _adapter(kind).validate_json(data)
    except ValidationError as error:
        found = data[:80].decode(errors="replace")
        raise EnvironmentLacks(
            f"another process of the training gave {found!r}, which is no {kind}: let nothing else "
            "write to the store of torch.distributed"
        ) from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)

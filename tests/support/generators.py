"""States of numpy's generators."""

from __future__ import annotations

from typing import Any

import numpy as np


def unused(rng: np.random.Generator) -> dict[str, Any]:
    """The state that decides on what is drawn next: without the half of a word that was used."""
    state: dict[str, Any] = dict(rng.bit_generator.state)
    return state if state["has_uint32"] else state | {"uinteger": 0}

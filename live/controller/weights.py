"""Removes weights from the zoo on disk that the scripts of a live run add theirs to."""

from collections.abc import Collection
from pathlib import Path

from wattkeeper.live.zoo.zoo import Zoo


def discard_weights(folder: Path, names: Collection[str]) -> None:
    """Remove the models of these names from the zoo in a folder."""
    zoo = Zoo(folder)
    for model in zoo.models():
        if model.name in names:
            zoo.remove(model.model_id)

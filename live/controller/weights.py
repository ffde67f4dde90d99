"""Removes weights from the zoo on disk that the scripts of a live run add theirs to."""

from collections.abc import Iterable
from pathlib import Path

from wattkeeper.live.controller.attempt import LiveAttempt, Standing
from wattkeeper.live.zoo.zoo import Zoo


class DiscardedWeights:
    """The weights of models that the zoo of a run discarded, and that are still on disk."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def add(self, models: Iterable[str]) -> None:
        """Take models over, by their names."""
        self._names.update(models)

    def remove(self, folder: Path, runs: Iterable[LiveAttempt]) -> None:
        """Remove those from the zoo in a folder that none of these attempts starts from."""
        parents = {
            run.decision.configuration.parent for run in runs if run.standing is not Standing.OVER
        }
        zoo = Zoo(folder)
        for model in zoo.models():
            if model.name in self._names - parents:
                zoo.remove(model.model_id)
        self._names &= parents

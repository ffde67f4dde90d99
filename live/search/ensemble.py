"""The accuracy of an ensemble: the members' class probabilities on the test images, averaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wattkeeper.policies.errors import StoreError
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.private import make_private_folder

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from wattkeeper.live.search.dataset import DatasetSplit


class MemberOutputs:
    """What each network says of the test images, kept in a folder: `NETWORK.npy`.

    Each is an array of class probabilities, shape (images, classes), float32.

    Args:
        folder: The folder, made if it is absent.
        test: The test images.
    """

    def __init__(self, folder: Path, test: DatasetSplit) -> None:
        make_private_folder(folder)
        self._folder, self._test = folder, test

    def keep(self, name: str, net: nn.Module) -> None:
        """Keep what a trained network says."""
        from wattkeeper.live.search.trainer import predict

        probabilities = predict(net, self._test.images).softmax(1).numpy()
        with replace_file(self._path(name)) as fresh, fresh.open("wb") as file:
            np.save(file, probabilities)

    def measure_accuracy(self, names: Sequence[str]) -> float:
        """Test accuracy of the mean of the networks' probabilities.

        Raises:
            StoreError: If what one of them said is gone or damaged.
        """
        labels = self._test.labels.numpy()
        total = np.sum([self._read(name) for name in names], axis=0, dtype=np.float64)
        return float((total.argmax(1) == labels).mean())

    def _read(self, name: str) -> np.ndarray:
        path = self._path(name)
        try:
            probabilities: np.ndarray = np.load(path)
        except (OSError, ValueError, EOFError) as error:
            what = f"cannot be read ({error}); remove its training from the log to train it again"
            raise StoreError(what, path) from None
        if probabilities.ndim != 2 or len(probabilities) != len(self._test.labels):
            raise StoreError("damaged: it has another shape", path)
        return probabilities

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.npy"

"""scikit-learn's images of handwritten digits, split for training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from wattkeeper.policies.errors import EnvironmentLacks

if TYPE_CHECKING:
    from torch import Tensor

CLASSES: Final = 10
CHANNELS: Final = 1
SIDE: Final = 8
MAX_BRIGHTNESS: Final = 16.0
TRAIN_SHARE, VALIDATION_SHARE = 0.6, 0.2
"""The other images are the test set."""


class DatasetSplit(NamedTuple):
    """Images, shape (images, 1, 8, 8), and their digits, shape (images,)."""

    images: Tensor
    labels: Tensor

    def to(self, torch_device: str) -> Self:
        """A copy on another torch device."""
        return self._replace(
            images=self.images.to(torch_device), labels=self.labels.to(torch_device)
        )


class Digits(NamedTuple):
    """Disjoint subsets of the images."""

    train: DatasetSplit
    validation: DatasetSplit
    test: DatasetSplit

    def to(self, torch_device: str) -> Self:
        """A copy on another torch device."""
        return type(self)(*(split.to(torch_device) for split in self))


def load(rng: np.random.Generator) -> Digits:
    """Load the 1,797 images of 8 x 8 pixels (Alpaydin and Kaynak, UCI, 1998), brightness 0 to 1.

    `rng` draws the split.

    Raises:
        EnvironmentLacks: If scikit-learn is absent.
    """
    import torch

    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise EnvironmentLacks(
            "the images of digits need scikit-learn: pip install 'wattkeeper[digits]'"
        ) from None
    data = load_digits()
    order = rng.permutation(len(data.target))
    ends = (np.cumsum([TRAIN_SHARE, VALIDATION_SHARE]) * len(order)).astype(int)
    splits = []
    for rows in np.split(order, ends):
        images = torch.tensor(data.images[rows] / MAX_BRIGHTNESS, dtype=torch.float32).unsqueeze(1)
        splits.append(DatasetSplit(images, torch.tensor(data.target[rows])))
    return Digits(*splits)

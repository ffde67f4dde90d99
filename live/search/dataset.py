"""scikit-learn's images of hand-written digits, split for training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from wattkeeper.policies.errors import EnvironmentLacks

if TYPE_CHECKING:
    from torch import Tensor

CLASSES: Final = 10
CHANNELS: Final = 1
SIDE: Final = 8
BRIGHTEST: Final = 16.0
TRAIN, VALIDATION = 0.6, 0.2
"""Shares of the images; the rest is for the test."""


class DatasetSplit(NamedTuple):
    """Images, shape (images, 1, 8, 8), and their digits, shape (images,)."""

    images: Tensor
    labels: Tensor

    def to(self, torch_device: str) -> Self:
        """The same on a device of torch's."""
        return self._replace(
            images=self.images.to(torch_device), labels=self.labels.to(torch_device)
        )


class Digits(NamedTuple):
    """The three parts of the data; no image is in two."""

    train: DatasetSplit
    validation: DatasetSplit
    test: DatasetSplit

    def to(self, torch_device: str) -> Self:
        """The same on a device of torch's."""
        return type(self)(*(part.to(torch_device) for part in self))


def load(rng: np.random.Generator) -> Digits:
    """The 1,797 images of 8 x 8 pixels (Alpaydin and Kaynak, UCI, 1998), brightness 0 to 1.

    Args:
        rng: Draws which image belongs to which part.

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
    ends = (np.cumsum([TRAIN, VALIDATION]) * len(order)).astype(int)
    parts = []
    for rows in np.split(order, ends):
        images = torch.tensor(data.images[rows] / BRIGHTEST, dtype=torch.float32).unsqueeze(1)
        parts.append(DatasetSplit(images, torch.tensor(data.target[rows])))
    return Digits(*parts)

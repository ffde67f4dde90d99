"""Figures close after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def no_windows_and_no_figures_stay() -> Iterator[None]:
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")

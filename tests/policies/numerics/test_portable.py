"""Functions of arrays against correctly rounded ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.numerics import portable

Function = Callable[[Floats], Floats]
DOUBLE = np.float64


@given(arrays(DOUBLE, st.integers(0, 40), elements=st.floats(-745, 709)))
def test_exponentials(values: Floats) -> None:
    exact = np.array([float(Decimal(value).exp()) for value in values.tolist()])
    assert (np.abs(portable.exp(values) - exact) <= np.spacing(exact)).all()


@given(arrays(DOUBLE, st.integers(0, 40), elements=st.floats(5e-324, 1.7e308)))
def test_logarithms(values: Floats) -> None:
    exact = np.array([float(Decimal(value).ln()) for value in values.tolist()])
    assert (np.abs(portable.log(values) - exact) <= 3 * np.spacing(np.abs(exact))).all()


def test_ends_of_the_range() -> None:
    values = np.array([-math.inf, -746, -745, 0.0, 710, math.inf, math.nan])
    with np.errstate(all="raise"):
        found = portable.exp(values).tolist()
    assert found[:6] == [0.0, 0.0, 5e-324, 1.0, math.inf, math.inf]
    assert math.isnan(found[6])


@pytest.mark.parametrize("function", [portable.exp, portable.log])
def test_blocks_and_shapes_change_nothing(function: Function) -> None:
    values = np.random.default_rng(1).uniform(0.1, 9.0, (3, portable.BLOCK))
    alone = [[float(function(np.array(value))) for value in row[:5]] for row in values]
    assert (function(values)[:, :5] == alone).all()


@pytest.mark.parametrize(
    ("function", "digest"), [(portable.exp, "834431fe83294374"), (portable.log, "a6b8eaea73e8b85d")]
)
def test_the_same_bits_on_any_processor(function: Function, digest: str) -> None:
    values = np.arange(1, 200_001, dtype=np.float64) * 0.003
    assert sha256(function(values).tobytes()).hexdigest()[:16] == digest

"""The support-vector regression against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.svm import SVR

from wattkeeper.policies.forecasts._svr import fit_regression


@example(seed=3147, size=28, spread=30.0, epsilon=0.1)  # no coefficient between the bounds
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(2, 60),
    spread=st.sampled_from([1.0, 30.0, 200.0]),
    epsilon=st.sampled_from([0.1, 5.0]),
)
def test_it_equals_scikit_learn(seed: int, size: int, spread: float, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    walk = 300 + np.cumsum(rng.normal(0, spread / 4, size + 1))
    angles = 2 * np.pi * np.arange(size) / 48
    rows = np.column_stack([np.sin(angles), np.cos(angles), walk[:-1]])
    ours = fit_regression(rows, walk[1:], epsilon=epsilon)
    theirs = SVR(kernel="rbf", gamma=1e-4, C=100, epsilon=epsilon, tol=1e-8).fit(rows, walk[1:])
    assert ours.coefficients.sum() == pytest.approx(0, abs=1e-6)
    assert np.abs(ours.coefficients).max() <= 100
    new = rows + rng.normal(0, spread / 10, rows.shape)
    predicted = [ours.predict(row) for row in new]
    # Without a coefficient between the bounds, the offset is free within an interval.
    free = (np.abs(ours.coefficients) > 1e-9) & (np.abs(ours.coefficients) < 100 - 1e-9)
    if free.any():
        assert predicted == pytest.approx(theirs.predict(new), abs=1e-3)
    else:
        assert np.diff(predicted) == pytest.approx(np.diff(theirs.predict(new)), abs=1e-3)


def test_equal_targets_are_predicted() -> None:
    rows = np.arange(12.0).reshape(4, 3)
    assert fit_regression(rows, np.full(4, 5.0)).predict(rows[2] + 1) == pytest.approx(5)

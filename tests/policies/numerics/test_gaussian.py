"""Conditioning one observation at a time against systems of equations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.numerics.gaussian import Gaussian


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(0, 6))
def test_observations_condition_as_a_system_of_equations_does(
    seed: int, size: int, observations: int
) -> None:
    rng = np.random.default_rng(seed)
    root, mean = rng.normal(size=(size, size)), rng.normal(size=size)
    prior = root @ root.T + 0.1 * np.eye(size)
    indices = rng.integers(0, size, observations).tolist()
    values, errors = rng.normal(size=observations), rng.uniform(0.01, 2.0, observations)
    found = Gaussian(mean, prior)
    for index, value, error in zip(indices, values.tolist(), errors.tolist(), strict=True):
        found = found.observe(index, value, error)
    cross, joint = prior[:, indices], prior[np.ix_(indices, indices)] + np.diag(errors)
    gain, left = np.linalg.solve(joint, cross.T).T, values - mean[indices]
    assert found.mean == pytest.approx(mean + gain @ left, abs=1e-8)
    assert found.covariance == pytest.approx(prior - gain @ cross.T, abs=1e-8)
    evidence = -(left @ np.linalg.solve(joint, left) + np.linalg.slogdet(joint)[1]) / 2
    assert found.evidence == pytest.approx(evidence, abs=1e-6)

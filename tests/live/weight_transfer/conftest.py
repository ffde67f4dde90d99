"""Seeds for the tests of weight transfer."""

import pytest


@pytest.fixture(autouse=True)
def _seed_torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed").manual_seed(0)

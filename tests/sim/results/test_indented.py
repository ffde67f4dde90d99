"""Indented JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.sim.results.indented import indent_json

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
keys = st.text() | st.integers() | st.booleans() | st.none()
values = st.recursive(
    leaves,
    lambda inside: st.lists(inside) | st.tuples(inside, inside) | st.dictionaries(keys, inside),
)


@given(values)
def test_the_text_is_that_of_the_standard_library(value: Any) -> None:
    assert indent_json(value) == json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        indent_json({"a": [number]})

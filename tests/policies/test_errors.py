"""Messages of several problems."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.errors import MOST_ALIKE, SHOWN, InputError, Problem


def test_problems_that_are_alike_are_one_line() -> None:
    rows = [Problem("gpus: found 'x'", f"log.csv, row {number}") for number in range(1, 21)]
    other = Problem("no header", "log.csv, row 9")
    assert str(InputError([*rows, other])).splitlines() == [
        "log.csv, row 1: gpus: found 'x' (and 19 more alike, the last one at log.csv, row 20)",
        "log.csv, row 9: no header",
    ]
    assert str(InputError([Problem("full")] * 20)) == "full (and 19 more alike)"


def test_few_problems_have_a_line_each() -> None:
    few = [Problem("gpus: found 'x'", f"row {number}") for number in range(MOST_ALIKE)]
    assert len(str(InputError(few)).splitlines()) == MOST_ALIKE


@given(st.lists(st.sampled_from(["a", "b", *map(str, range(30))]), min_size=1, max_size=80))
def test_no_problem_is_lost(messages: list[str]) -> None:
    error = InputError([Problem(text, f"row {row}") for row, text in enumerate(messages)])
    *lines, last = str(error).splitlines()
    counted = 0
    for line in (*lines, last):
        if line.startswith("... and "):
            counted += int(line.split()[2])
        else:
            counted += 1 + (int(line.split("(and ")[1].split()[0]) if "(and " in line else 0)
    assert counted == len(messages)
    assert len(lines) <= SHOWN

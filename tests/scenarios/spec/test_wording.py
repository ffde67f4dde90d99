"""Lines about names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.scenarios.spec.wording import MOST_NAMED, merge_names


def test_many_names_of_one_text_have_one_line() -> None:
    texts = [("a", "other"), *((f"v{number}", "240 W") for number in range(20))]
    assert list(merge_names(texts)) == ["a: other", "v0, v1, v2 and 17 more: 240 W"]


@given(st.lists(st.sampled_from("xyz"), max_size=30))
def test_no_name_is_lost(listed: list[str]) -> None:
    lines = list(merge_names((f"v{number}", text) for number, text in enumerate(listed)))
    assert len(lines) == sum(
        1 if count > MOST_NAMED else count for count in map(listed.count, set(listed))
    )
    named = sum(line.count("v") for line in lines)
    more = sum(int(line.split(" and ")[1].split()[0]) for line in lines if " and " in line)
    assert named + more == len(listed)

"""Names of files that are made of the names of other things."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.errors import InputError
from wattkeeper.traces.files.names import check_label, derive_name, file_name, is_name

TEXTS = st.text(max_size=300) | st.text("aA./\\#-_ \0", max_size=6)


@given(TEXTS)
def test_any_text_has_a_file_name(text: str) -> None:
    name = file_name(text)
    assert PurePosixPath(name).parts == (name,)
    assert name not in {"", ".", ".."}
    assert name.isascii()
    assert name.isprintable()
    assert len(name) <= 100
    if is_name(text):
        assert name == text


@given(TEXTS, TEXTS)
def test_different_texts_have_different_file_names(one: str, other: str) -> None:
    assert (file_name(one) == file_name(other)) == (one == other)


def test_jobs_that_differ_only_in_odd_characters_share_no_file() -> None:
    """Two jobs `a/b` and `a:b` shared a checkpoint: one went on with the state of the other."""
    assert len({file_name(f"{job}#1") for job in ("a/b", "a:b", "a_b", "a b")}) == 4
    assert file_name("a_b#1") == "a_b#1"


@pytest.mark.parametrize("text", ["a b", "100 %", "é", "图像", "./a", "[red]", "x" * 200])
def test_labels(text: str) -> None:
    assert check_label(text, "model") == text
    assert is_name(derive_name(text))


@pytest.mark.parametrize(
    "text", ["", "a\tb", "a\nb", "\x1b", "\x9b", "\ud800", "\u2066", "x" * 201]
)
def test_no_labels(text: str) -> None:
    with pytest.raises(InputError, match=r"model .*1 to 200 characters"):
        check_label(text, "model")

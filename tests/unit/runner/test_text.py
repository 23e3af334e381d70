"""Settled text: what a caller sees, and when."""

from __future__ import annotations

import pytest
from constraintd_runner.text import SettledText

# 0: special, 1..: pieces; the snowman U+2603 is e2 98 83.
TABLE = (b"", b"ab", b"\xe2", b"\x98\x83", b"c\xe2\x98", b"\x83d", b"\xff")


def test_text_comes_only_as_far_as_it_is_settled() -> None:
    text = SettledText(TABLE)
    text.accept(1)
    assert text.settle(0) == ""
    text.accept(1)
    assert text.settle(3) == "aba"
    assert text.settle(4) == "b"


def test_a_character_split_over_tokens_comes_whole() -> None:
    text = SettledText(TABLE)
    text.accept(4)
    assert text.settle(3) == "c"
    text.accept(5)
    assert text.settle(5) == "☃d"


def test_bytes_that_are_not_utf_8_become_the_replacement_character() -> None:
    text = SettledText(TABLE)
    text.accept(6)
    text.accept(1)
    assert text.settle(3) == "�ab"


def test_the_end_cuts_off_what_a_stop_took() -> None:
    text = SettledText(TABLE)
    text.accept(1)
    assert text.settle(1) == "a"
    text.accept(1)
    assert text.finish(3) == "ba"


def test_a_character_cut_off_by_the_end_becomes_the_replacement_character() -> None:
    text = SettledText(TABLE)
    text.accept(1)
    text.accept(2)
    assert text.settle(3) == "ab"
    assert text.finish(3) == "�"


def test_special_tokens_and_ids_past_the_table_have_no_text() -> None:
    text = SettledText(TABLE)
    text.accept(0)
    text.accept(99)
    assert text.finish(0) == ""


@pytest.mark.parametrize("offset", [0, 3])
def test_an_offset_that_cannot_be_is_an_error(offset: int) -> None:
    text = SettledText(TABLE)
    text.accept(1)
    text.settle(1)
    with pytest.raises(ValueError, match="1 bytes were shown, 1 wait"):
        text.settle(offset)

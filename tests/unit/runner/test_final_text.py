"""The final text with its special tokens: what belongs to it, and what is marked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from constraintd_client import Finish, TokenTable, VocabularyInfo
from constraintd_runner.final_text import final_pieces, mark, marked_text, unmark
from constraintd_runner.special import SpecialTokens

# 0 to 4: text; 5 and 6: the halves of U+00E9; 7 and 8: special.
TOKENS = (b"a", b"b", b"ab", b"<|tool|>", b"", b"\xc3", b"\xa9", b"", b"")
TABLE = TokenTable(VocabularyInfo("v", 9, 12, (8,), None, False), TOKENS, {7: "<|tool|>", 8: "</s>"})
SPECIAL = SpecialTokens.of({"<|tool|>": 7, "</s>": 8})


def text(tokens: Sequence[int], cut: int, reason: str = "LENGTH", stop_id: int | None = None) -> str:
    return unmark(marked_text(final_pieces(tokens, Finish(reason, b"", stop_id, cut, False), TABLE)))


def test_special_tokens_stand_by_their_spelling() -> None:
    assert text([0, 7, 1], 2) == "a<|tool|>b"


@pytest.mark.parametrize(("reason", "terminal"), [("EOG", 8), ("STOP_ID", 7), ("STOP_ID", 1)])
def test_the_terminal_token_is_no_part_of_the_text(reason: str, terminal: int) -> None:
    assert text([0, 7, terminal], 1, reason, terminal) == "a<|tool|>"


def test_a_stop_string_cuts_at_its_offset_inside_a_token() -> None:
    assert text([0, 2, 1], 2, "STOP_STRING") == "aa"


def test_a_special_token_before_the_stop_stays_and_one_inside_it_goes() -> None:
    assert text([0, 7, 1, 7, 2], 1, "STOP_STRING") == "a<|tool|>"


def test_a_character_split_over_tokens_is_whole_and_a_cut_one_is_replaced() -> None:
    assert text([5, 6], 2) == "é"
    assert text([5, 6], 1) == "�"


def test_ids_past_the_table_have_no_text() -> None:
    assert text([0, 11, 4], 1) == "a"


def test_text_that_spells_a_special_token_is_not_that_token() -> None:
    marked = marked_text(final_pieces([3, 7], Finish("LENGTH", b"", None, 8, False), TABLE))
    assert unmark(marked) == "<|tool|><|tool|>"
    assert marked.find(mark("<|tool|>", SPECIAL)) == len("<|tool|>")


def test_a_marker_s_special_tokens_are_marked_wherever_they_stand_in_it() -> None:
    marked = marked_text(final_pieces([0, 7, 1], Finish("LENGTH", b"", None, 2, False), TABLE))
    assert mark("a<|tool|>b", SPECIAL) == marked
    assert mark("ab", SPECIAL) == "ab"

"""Where reasoning ends: in the prompt, and in what is generated."""

from __future__ import annotations

import pytest
from constraintd_client import Finish, ReasoningEnd, TokenTable, VocabularyInfo, reasoning_end
from constraintd_runner.final_text import final_pieces, marked_text, unmark
from constraintd_runner.reasoning import reasons_after, split_reasoning

# The bytes; 256 is the text "k>x", 257 the special token "</think>", 258 the special token "<end>".
TABLE = TokenTable(
    VocabularyInfo("v", 259, 259, (0,), None, False),
    (*(bytes([value]) for value in range(256)), b"k>x", b"", b""),
    {257: "</think>", 258: "<end>"},
)


def split(tokens: list[int], end: ReasoningEnd) -> tuple[str, str]:
    size = sum(len(TABLE.tokens[token]) for token in tokens)
    pieces = final_pieces(tokens, Finish("LENGTH", b"", None, size, False), TABLE)
    before, after = split_reasoning(pieces, end, TABLE)
    return unmark(marked_text(before)), unmark(marked_text(after))


def test_a_text_ends_it_where_it_first_stands_even_inside_a_token() -> None:
    assert split([*b"hm </thin", 256, *b"y</think>"], reasoning_end("</think>x", "</think>")) == (
        "hm </think>x",
        "y</think>",
    )
    assert split([*b"a.b.c"], reasoning_end(".")) == ("a.", "b.c")


def test_a_text_that_spells_a_special_token_is_that_token() -> None:
    assert split([*b"</think>a", 257, *b"b"], reasoning_end("</think>")) == ("</think>a</think>", "b")


def test_a_token_ends_it() -> None:
    assert split([*b"a", 258, 257, *b"b"], reasoning_end(tokens=[258])) == ("a<end>", "</think>b")


def test_reasoning_that_never_ends_is_all_there_is() -> None:
    assert split([*b"abc"], reasoning_end("x")) == ("abc", "")


def test_of_two_texts_the_earlier_and_then_the_longer_counts() -> None:
    assert split([*b"</thin", 256], reasoning_end("k>", "k>x", "x")) == ("</think>x", "")


@pytest.mark.parametrize(
    ("prompt", "end", "reasons"),
    [
        ([*b"question"], reasoning_end("!"), True),
        ([*b"so! then"], reasoning_end("!"), False),
        ([*b"a", 258, *b"b"], reasoning_end(tokens=[258]), False),
        ([*b"a", 257], reasoning_end("</think>"), False),
        ([*b"a</think>"], reasoning_end("</think>"), False),
        ([*b"<t>a! <t>"], reasoning_end("!", begin="<t>"), True),
        ([*b"<t>a! b"], reasoning_end("!", begin="<t>"), False),
        ([*b"question"], reasoning_end("!", begin="<t>"), False),
        ([*b"<t>a", 258, *b"b"], reasoning_end(tokens=[258], begin="<t>"), False),
    ],
)
def test_the_prompt_tells_whether_it_is_over(prompt: list[int], end: ReasoningEnd, reasons: bool) -> None:
    assert reasons_after(prompt, end, TABLE) == reasons

"""The token trie: paths, token ranges, symbols and heights."""

from __future__ import annotations

import pytest

from constraintd.vocabulary.trie import build_trie
from constraintd.vocabulary.vocabulary import build_vocabulary

TOKENS = [b"a", b"ab", b"abc", b"\xe2\x82", b"b\xe2\x82\xac", b"\x82", b"", b"\0x", b"ab", b"</s>"]
TRIE = build_trie(build_vocabulary(TOKENS, {}, eog_ids=[9]))


def node(path: bytes) -> int:
    here = 0
    for byte in path:
        first = int(TRIE.first_child[here])
        children = range(first, first + int(TRIE.child_count[here]))
        here = next(child for child in children if TRIE.byte[child] == byte)
    return here


def tokens(first, end):
    return sorted(TRIE.order[int(first) : int(end)].tolist())


def symbols(path: bytes) -> set[int]:
    words = TRIE.symbol_sets[TRIE.symbols[node(path)]].tolist()
    return {64 * number + bit for number, word in enumerate(words) for bit in range(64) if word >> bit & 1}


def test_a_token_ends_at_its_path_and_duplicates_stand_together():
    at = node(b"ab")
    assert tokens(TRIE.first_token[at], TRIE.own_end[at]) == [1, 8]
    assert tokens(TRIE.first_token[at], TRIE.token_end[at]) == [1, 2, 8]


def test_empty_nul_and_eog_tokens_are_left_out():
    assert sorted(TRIE.order.tolist()) == [0, 1, 2, 3, 4, 5, 8]
    assert TRIE.node_count == 1 + 3 + 2 + 4 + 1


def test_symbols_are_ascii_bytes_and_lead_bytes_of_all_below():
    assert symbols(b"a") == {ord("a"), ord("b"), ord("c")}
    assert symbols(b"b") == {ord("b"), 0xE2}
    assert symbols(b"\xe2") == {0xE2}


def test_a_byte_that_begins_no_character_is_its_own_symbol():
    assert symbols(b"\x82") == {0x82}


@pytest.mark.parametrize(("path", "height"), [(b"a", 3), (b"ab", 2), (b"b", 2), (b"\xe2", 1), (b"\x82", 0)])
def test_height_is_the_most_characters_on_the_way_down(path, height):
    assert TRIE.height[node(path)] == height


def test_a_vocabulary_without_text_but_eog_has_an_empty_trie():
    trie = build_trie(build_vocabulary([b"</s>"], {}, eog_ids=[0]))
    assert (trie.node_count, len(trie.order)) == (1, 0)

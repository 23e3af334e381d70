"""What engines get, and that llguidance makes of it what the table's documentation says."""

from __future__ import annotations

import llguidance
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from constraintd.vocabulary.engine_table import engine_table
from constraintd.vocabulary.vocabulary import build_vocabulary

NO_FORCING = '%llguidance {"no_forcing": true}\n'


class _Tokenizer:
    """The shape that llguidance's TokenizerWrapper wants."""

    bos_token_id = None

    def __init__(self, table, eos_token_id):
        self.tokens = table.tokens
        self.special_token_ids = table.special_ids
        self.eos_token_id = eos_token_id

    def __call__(self, text):
        return list(text)


@pytest.fixture(scope="module")
def vocabulary():
    """256 single bytes; 256 `<X>` special; 257 `<X>` text; 258 a hole; 259 `a` again; 260 EOG; width 262."""
    return build_vocabulary(
        [bytes([byte]) for byte in range(256)] + [b"", b"<X>", b"", b"a"],
        {256: "<X>", 260: "<|end|>", 300: "<past>"},
        eog_ids=[260],
        logits_width=262,
    )


def _first_mask(vocabulary, grammar):
    tokenizer = LLTokenizer(
        llguidance.TokenizerWrapper(_Tokenizer(engine_table(vocabulary), vocabulary.eog_ids[0])),
        n_vocab=vocabulary.logits_width,
        eos_token=list(vocabulary.eog_ids),
        slices=[],
    )
    matcher = LLMatcher(tokenizer, NO_FORCING + grammar)
    mask = matcher.compute_bitmask()
    assert not matcher.is_error(), matcher.get_error()
    return np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")).tolist()


def test_a_wider_row_is_padded_with_nothing(vocabulary):
    table = engine_table(vocabulary)
    assert len(table.tokens) == 262
    assert table.tokens[256:] == [b"<X>", b"<X>", b"", b"a", b"<|end|>", b""]
    assert table.special_ids == [256, 260]


def test_a_narrower_row_cuts_ids_off():
    vocabulary = build_vocabulary([b"a", b"b", b"c"], {3: "<x>"}, eog_ids=[1], logits_width=2)
    table = engine_table(vocabulary)
    assert table.tokens == [b"a", b"b"]
    assert table.special_ids == []


def test_text_never_matches_the_special_token_of_that_spelling(vocabulary):
    assert _first_mask(vocabulary, 'start: "<X>"') == [ord("<"), 257]


def test_a_special_token_never_matches_the_text_of_that_spelling(vocabulary):
    assert _first_mask(vocabulary, "start: <X>") == [256]


def test_holes_and_padding_stay_out_and_tokens_with_the_same_bytes_both_come(vocabulary):
    assert _first_mask(vocabulary, 'start: "a" | "b"') == [ord("a"), ord("b"), 259]


def test_any_text_is_every_character_start_and_the_eog(vocabulary):
    starts = [*range(0x80), *range(0xC2, 0xF5)]
    assert _first_mask(vocabulary, "start: /(.|\\n)*/") == [*starts, 257, 259, 260]


def test_an_eog_id_that_the_tokenizer_does_not_know_still_ends_a_text():
    vocabulary = build_vocabulary([b"a"], {}, eog_ids=[5], logits_width=6)
    assert _first_mask(vocabulary, 'start: "a"?') == [0, 5]


def test_a_text_token_that_begins_with_ff_cannot_pass_as_special():
    vocabulary = build_vocabulary([b"\xff[2", b"\xff", b"", b"a\xff"], {2: "<X>", 4: "<e>"}, eog_ids=[4])
    assert engine_table(vocabulary).tokens == [b"", b"", b"<X>", b"a\xff", b"<e>"]
    assert _first_mask(vocabulary, "start: <[2]>") == [2]


@pytest.mark.parametrize("spelling", ["", "[", "[2", "[2]", "[31]"])
def test_a_special_token_spelled_like_an_id_matches_only_itself(spelling):
    vocabulary = build_vocabulary([b"a"], {1: spelling, 2: "<X>", 3: "<e>"}, eog_ids=[3])
    assert engine_table(vocabulary).tokens[1] == b"<special id 1>"
    assert _first_mask(vocabulary, "start: <[2]>") == [2]
    assert _first_mask(vocabulary, "start: <[1]>") == [1]


def test_other_bracketed_special_tokens_keep_their_spelling():
    vocabulary = build_vocabulary([b"a"], {1: "[INST]", 2: "[/INST]"}, eog_ids=[2])
    assert engine_table(vocabulary).tokens == [b"a", b"[INST]", b"[/INST]"]

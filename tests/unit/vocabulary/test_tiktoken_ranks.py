"""Files of tiktoken ranks, by small ones: all 256 bytes, and a few merges."""

from __future__ import annotations

import base64

import pytest

from constraintd.errors import EogMissing, VocabularyError
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from constraintd.vocabulary.tiktoken_ranks import read_tiktoken_ranks

TIKTOKEN = VocabularyFormat.TIKTOKEN
WORDS = r"\w+|\W+"


def ranks_file(*further):
    """Bytes by their values, then the (token, rank)s of `further`."""
    tokens = [*((bytes([byte]), byte) for byte in range(256)), *further]
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in tokens)


def test_a_rank_is_an_id_and_a_gap_is_a_hole_where_a_special_token_may_go():
    data = ranks_file((b"ab", 256), (b"abab", 258))
    vocabulary = load_vocabulary(TIKTOKEN, data, special={257: "<|end|>"}, eog_ids=[257])
    assert len(vocabulary.token_bytes) == vocabulary.logits_width == 259
    assert [vocabulary.bytes_of(token_id) for token_id in (0x41, 256, 257, 258)] == [b"A", b"ab", b"", b"abab"]
    assert dict(vocabulary.special) == {257: "<|end|>"}
    assert vocabulary.encoder is None


def test_an_unnamed_gap_is_not_a_real_id():
    vocabulary = load_vocabulary(TIKTOKEN, ranks_file((b"ab", 258)), eog_ids=[0])
    assert vocabulary.real_ids[8] == 0b100


def test_with_a_pattern_text_is_merged_by_rank():
    encoder = read_tiktoken_ranks(ranks_file((b"ab", 256)), {}, WORDS).encoder
    assert encoder.encode("abc ab") == [256, 99, 32, 256]
    assert encoder.encode("é") == [0xC3, 0xA9]


def test_text_that_spells_a_special_token_stays_text():
    encoder = read_tiktoken_ranks(ranks_file(), {256: "ab"}, WORDS).encoder
    assert encoder.encode("ab") == [97, 98]


def test_the_pattern_is_part_of_the_fingerprint():
    with_words, with_all, without = (
        load_vocabulary(TIKTOKEN, ranks_file(), eog_ids=[0], pattern=pattern) for pattern in (WORDS, r"(?s:.)", None)
    )
    assert len({with_words.fingerprint, with_all.fingerprint, without.fingerprint}) == 3


def test_a_configuration_file_names_a_special_token_by_its_spelling():
    vocabulary = load_vocabulary(
        TIKTOKEN,
        ranks_file(),
        special={256: "<|begin|>", 257: "<|end|>"},
        tokenizer_config=b'{"bos_token": "<|begin|>", "eos_token": "<|end|>"}',
    )
    assert (vocabulary.bos_id, vocabulary.eog_ids) == (256, (257,))


def test_the_file_names_no_eog_id():
    with pytest.raises(EogMissing):
        load_vocabulary(TIKTOKEN, ranks_file(), special={256: "<|end|>"})


@pytest.mark.parametrize("pattern", [r"\w+", r"a*"], ids=["leaves text out", "matches nothing"])
def test_a_pattern_that_would_lose_text_is_an_error_and_never_a_shorter_text(pattern):
    encoder = read_tiktoken_ranks(ranks_file(), {}, pattern).encoder
    with pytest.raises(VocabularyError, match="pattern: the pattern doesn't split the text without loss"):
        encoder.encode("b a")


def test_text_with_a_lone_surrogate_is_an_error():
    with pytest.raises(VocabularyError, match="text: the text can't be encoded"):
        read_tiktoken_ranks(ranks_file(), {}, WORDS).encoder.encode("a\ud800")


@pytest.mark.parametrize(
    ("data", "location", "problem"),
    [
        (b"", "tiktoken ranks", "no lines"),
        (b"YQ== 0\nYg==\n", "tiktoken ranks, line 2", "expected base64"),
        (b"YQ== 0\n\n!!!! 1\n", "tiktoken ranks, line 3", "expected base64"),
        (b"YQ== -1\n", "tiktoken ranks, line 1", "expected base64"),
        (b"YQ== 2097152\n", "tiktoken ranks, line 1", "a rank under 2097152"),
        (b"YQ== " + b"1" * 5000, "tiktoken ranks, line 1", "a rank under 2097152"),
        (b"YQ== 0\nYg== 0\n", "tiktoken ranks, line 2", "rank 0 stands on line 1 too"),
        (b"YQ== 0\r\nYQ== 1\r\n", "tiktoken ranks, line 2", "the token stands twice"),
        (b'{"model": {}}', "tiktoken ranks, line 1", "expected base64"),
        (b"version https://git-lfs.github.com/spec/v1\n", "tiktoken ranks", "Git LFS pointer"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(data, location, problem):
    with pytest.raises(VocabularyError, match=problem) as refusal:
        read_tiktoken_ranks(data, {}, None)
    assert refusal.value.location == location


@pytest.mark.parametrize("special", [{97: "<|end|>"}, {256: ""}, {256: "<|end|>", 257: "<|end|>"}])
def test_a_special_id_or_spelling_that_is_taken_is_refused(special):
    with pytest.raises(VocabularyError) as refusal:
        read_tiktoken_ranks(ranks_file(), special, None)
    assert refusal.value.location == "special"


def test_an_encoder_needs_every_single_byte():
    with pytest.raises(VocabularyError, match="255 single bytes have no token, first 0x00"):
        read_tiktoken_ranks(b"YQ== 0\n", {}, WORDS)


def test_an_encoder_needs_a_pattern_that_parses():
    with pytest.raises(VocabularyError, match="pattern: the tiktoken package refuses the pattern"):
        read_tiktoken_ranks(ranks_file(), {}, "(")


@pytest.mark.parametrize("extra", [{"special": {9: "<|end|>"}}, {"pattern": WORDS}])
def test_special_and_pattern_belong_to_no_other_format(byte_level_json, extra):
    with pytest.raises(VocabularyError) as refusal:
        load_vocabulary(VocabularyFormat.TOKENIZER_JSON, byte_level_json(), eog_ids=[6], **extra)
    assert refusal.value.location == next(iter(extra))

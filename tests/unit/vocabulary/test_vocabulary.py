"""The Vocabulary value: checks at construction, fingerprint, real ids."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from constraintd.errors import EogMissing, VocabularyError
from constraintd.vocabulary.vocabulary import build_vocabulary


class _Encoder:
    def __init__(self, digest: str) -> None:
        self.source_digest = digest

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError(text)


def _build(token_bytes=(b"a", b"b", b""), special=None, **options):
    return build_vocabulary(token_bytes, {2: "</s>"} if special is None else special, **{"eog_ids": [2], **options})


def test_eog_ids_come_out_ascending_and_once():
    assert _build(eog_ids=[2, 0, 2]).eog_ids == (0, 2)


def test_the_logits_width_defaults_to_the_number_of_ids():
    assert _build().logits_width == 3


def test_special_ids_past_the_table_lengthen_it_with_holes():
    vocabulary = _build(special={5: "</s>"}, eog_ids=[5])
    assert vocabulary.token_bytes == (b"a", b"b", b"", b"", b"", b"")


def test_it_is_immutable():
    vocabulary = _build()
    with pytest.raises(dataclasses.FrozenInstanceError):
        vocabulary.logits_width = 9
    with pytest.raises(TypeError):
        vocabulary.special[0] = "x"


def test_bytes_of_padding_columns_and_special_ids_are_empty():
    vocabulary = _build(logits_width=64)
    assert [vocabulary.bytes_of(token_id) for token_id in (0, 1, 2, 63, 10**9, -1)] == [
        b"a",
        b"b",
        b"",
        b"",
        b"",
        b"",
    ]


def test_real_ids_are_text_special_and_eog_ids_below_a_wider_row():
    vocabulary = _build((b"a", b"", b"b"), {4: "<x>"}, eog_ids=[33], logits_width=70)
    mask = vocabulary.real_ids
    assert mask.dtype == np.uint32
    assert mask.tolist() == [0b10101, 0b10, 0]


def test_real_ids_past_a_narrower_row_are_left_out():
    vocabulary = _build((b"a",) * 40, {40: "<x>"}, eog_ids=[0], logits_width=33)
    assert vocabulary.real_ids.tolist() == [0xFFFFFFFF, 0b1]


def test_real_ids_of_a_row_of_whole_words():
    assert _build((b"a",) * 64, {}, eog_ids=[0]).real_ids.tolist() == [0xFFFFFFFF, 0xFFFFFFFF]


def test_equal_contents_give_equal_vocabularies():
    assert _build() == _build(token_bytes=[b"a", b"b"])
    assert hash(_build()) == hash(_build())
    assert _build() != "a vocabulary"


def test_the_fingerprint_is_stable_across_versions():
    # It names vocabularies in stored sessions: change it only with a new scheme name in what is hashed.
    assert _build().fingerprint == "88e17b52c2108f34f2698f92d844402ee27dac55197bf1788eaa0aa78b60f818"


@pytest.mark.parametrize(
    "other",
    [
        {"token_bytes": (b"b", b"a", b"")},
        {"token_bytes": (b"ab", b"", b"")},
        {"token_bytes": (b"a", b"b", b"", b"")},
        {"special": {2: "<eos>"}},
        {"special": {}},
        {"eog_ids": [1, 2]},
        {"logits_width": 4},
        {"bos_id": 0},
        {"encoder": _Encoder("00")},
    ],
    ids=lambda other: next(iter(other)),
)
def test_every_part_counts_in_the_fingerprint(other):
    base = _build(logits_width=3)
    assert _build(**{"logits_width": 3, **other}).fingerprint != base.fingerprint


def test_two_encoders_give_two_vocabularies():
    assert _build(encoder=_Encoder("00")) != _build(encoder=_Encoder("01"))


@pytest.mark.parametrize(
    ("options", "location", "problem"),
    [
        ({"eog_ids": [3]}, "eog_ids", "EOG id 3 is outside of the logits row of 3 columns"),
        ({"eog_ids": [-1]}, "eog_ids", "EOG id -1 is outside"),
        ({"eog_ids": [2], "logits_width": 2}, "eog_ids", "EOG id 2 is outside of the logits row of 2 columns"),
        ({"logits_width": 0}, "logits_width", "logits width 0 is not in 1..2097152"),
        ({"logits_width": -5}, "logits_width", "logits width -5 is not in 1..2097152"),
        ({"logits_width": 2**21 + 1}, "logits_width", "logits width 2097153 is not in 1..2097152"),
        ({"bos_id": 3}, "bos_id", "BOS id 3 is outside of the vocabulary's 3 ids"),
        ({"bos_id": -1}, "bos_id", "BOS id -1 is outside"),
        ({"token_bytes": (), "special": {2: "</s>"}}, "token_bytes", "no token of this vocabulary has any bytes"),
        ({"token_bytes": (), "special": {}}, "token_bytes", "no token of this vocabulary has any bytes"),
        ({"special": {1: "b"}}, "token_bytes[1]", "id 1 ('b') is special but has bytes"),
        ({"special": {-1: "x"}}, "special", "special id -1 is negative"),
        ({"special": {2**21: "x"}}, "token_bytes", "2097153 token ids, the limit is 2097152"),
        (
            {"token_bytes": (b"a", b"x" * 65_537)},
            "token_bytes[1]",
            "token 1 is 65537 bytes long, the limit is 65536",
        ),
    ],
)
def test_a_bad_part_is_named(options, location, problem):
    with pytest.raises(VocabularyError) as refused:
        _build(**options)
    assert refused.value.location == location
    assert problem in refused.value.problem


def test_a_vocabulary_without_eog_says_how_to_give_one():
    with pytest.raises(EogMissing, match="no end-of-generation id is known; pass eog_ids"):
        _build(eog_ids=[])

"""What the n-gram penalty leaves alone, in tokens."""

from __future__ import annotations

import pytest

from constraintd.errors import InvalidField
from constraintd.sampler.common_words import COMMON_WORDS, JSON_PUNCTUATION
from constraintd.sampler.config import IgnoredNGrams, IgnoredSet
from constraintd.sampler.ignored import resolve_ignored
from constraintd.vocabulary.vocabulary import Vocabulary, build_vocabulary

PIECES = [b"", b"the", b" the", b" The", b"T", b"he", b'"', b":", b'":', b"cat", b"\xff", b"the"]
THE, SPACE_THE, SPACE_CAPITAL_THE, T, HE, QUOTE, COLON, QUOTE_COLON, CAT, THE_AGAIN = 1, 2, 3, 4, 5, 6, 7, 8, 9, 11


class Longest:
    """Takes the longest piece each time."""

    source_digest = "longest"

    def encode(self, text: str) -> list[int]:
        left, ids = text.encode(), []
        while left:
            fits = [i for i, piece in enumerate(PIECES) if piece and left.startswith(piece)]
            if not fits:
                return [0] * 8  # so long that a named set skips it
            ids.append(max(fits, key=lambda i: (len(PIECES[i]), -i)))
            left = left[len(PIECES[ids[-1]]) :]
        return ids


BARE = build_vocabulary(PIECES, {0: "</s>"}, eog_ids=[0])
WITH_ENCODER = build_vocabulary(PIECES, {0: "</s>"}, eog_ids=[0], encoder=Longest())


def resolved(
    vocabulary: Vocabulary = BARE,
    *,
    ngrams: tuple[tuple[int, ...], ...] = (),
    texts: tuple[bytes, ...] = (),
    sets: tuple[IgnoredSet, ...] = (),
    stop_ids: tuple[int, ...] = (),
) -> set[tuple[int, ...]]:
    return set(resolve_ignored(IgnoredNGrams(ngrams, texts, sets), stop_ids, vocabulary))


def test_explicit_ngrams_are_taken_as_they_are() -> None:
    assert resolved(ngrams=((4, 5), (9,))) == {(4, 5), (9,)}


def test_stop_tokens_are_the_eog_ids_and_the_stop_ids() -> None:
    assert resolved(sets=(IgnoredSet.STOP_TOKENS,), stop_ids=(9, 4)) == {(0,), (9,), (4,)}


def test_common_words_without_an_encoder_are_the_tokens_of_their_bytes() -> None:
    assert resolved(sets=(IgnoredSet.COMMON_WORDS,)) == {
        (THE,),
        (SPACE_THE,),
        (SPACE_CAPITAL_THE,),
        (HE,),
        (THE_AGAIN,),
    }


def test_common_words_with_an_encoder_are_tokenised_as_well() -> None:
    found = resolved(WITH_ENCODER, sets=(IgnoredSet.COMMON_WORDS,))
    assert found == {(THE,), (SPACE_THE,), (SPACE_CAPITAL_THE,), (HE,), (THE_AGAIN,), (T, HE)}


def test_json_punctuation_and_its_joins_are_tokens() -> None:
    assert resolved(sets=(IgnoredSet.JSON_PUNCTUATION,)) == {(QUOTE,), (COLON,), (QUOTE_COLON,)}


def test_a_text_is_tokenised() -> None:
    assert resolved(WITH_ENCODER, texts=(b"cat the", b"The")) == {(CAT, SPACE_THE), (T, HE)}


def test_without_an_encoder_a_text_is_every_token_of_its_bytes() -> None:
    assert resolved(texts=(b"the", b"\xff")) == {(THE,), (THE_AGAIN,), (10,)}


@pytest.mark.parametrize(
    ("vocabulary", "text", "problem"),
    [
        (BARE, b"cats", "no single token has these bytes"),
        (BARE, b"", "no single token has these bytes"),
        (WITH_ENCODER, b"cat" * 8, "8 tokens, yet an n-gram has 1 to 7"),
        (WITH_ENCODER, b"", "0 tokens, yet an n-gram has 1 to 7"),
        (WITH_ENCODER, b"the\xff", "byte 3 is not UTF-8"),
    ],
)
def test_a_text_that_gives_no_ngram_is_refused_by_its_index(vocabulary: Vocabulary, text: bytes, problem: str) -> None:
    with pytest.raises(InvalidField) as refused:
        resolved(vocabulary, texts=(b"the", text))
    assert refused.value.metadata["field"] == "sampler.ngram_penalty.ignored.texts[1]"
    assert problem in refused.value.message


def test_nothing_to_ignore_is_nothing() -> None:
    assert resolved() == set()


def test_the_memo_is_by_vocabulary_and_stop_ids() -> None:
    sets = (IgnoredSet.STOP_TOKENS,)
    other = build_vocabulary(PIECES, {0: "</s>"}, eog_ids=[4])
    assert resolved(sets=sets) == {(0,)}
    assert resolved(other, sets=sets) == {(4,)}
    assert resolved(sets=sets, stop_ids=(9,)) == {(0,), (9,)}


def test_each_common_word_stands_in_four_forms() -> None:
    assert {"the", " the", "The", " The"} <= set(COMMON_WORDS)
    assert len(COMMON_WORDS) == len(set(COMMON_WORDS))
    assert 60 <= len(COMMON_WORDS) // 4 <= 120


def test_json_punctuation_holds_the_usual_joins() -> None:
    assert {"{", "}", "[", "]", ":", ",", '"', '":', '",', '{"', '"}', '":"', '","', '": "', ', "'} <= set(
        JSON_PUNCTUATION
    )
    assert len(JSON_PUNCTUATION) == len(set(JSON_PUNCTUATION))

"""Which n-grams the n-gram penalty leaves alone: a config's texts and named sets, turned into tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache

from constraintd.errors import InvalidField
from constraintd.sampler.common_words import COMMON_WORDS, JSON_PUNCTUATION
from constraintd.sampler.config import IgnoredNGrams, IgnoredSet
from constraintd.vocabulary.vocabulary import TextEncoder, Vocabulary

MAX_NGRAM = 7
"""Longest n-gram, in tokens."""

_TEXTS_FIELD = "sampler.ngram_penalty.ignored.texts"
_NAMED = {IgnoredSet.COMMON_WORDS: COMMON_WORDS, IgnoredSet.JSON_PUNCTUATION: JSON_PUNCTUATION}


def resolve_ignored(
    ignored: IgnoredNGrams, stop_ids: tuple[int, ...], vocabulary: Vocabulary
) -> frozenset[tuple[int, ...]]:
    """The n-grams to leave alone, in tokens. A memo by the vocabulary's fingerprint; takes ~20 ms the first time.

    A text is what the vocabulary's encoder makes of it, without an encoder every token of exactly those bytes. A named
    set's texts are both, since what an encoder makes of a lone comma may differ from the comma within a text.

    Raises InvalidField for a text that is not UTF-8, gives no token or more than 7, or without an encoder is no token.
    """
    # A cell to fill, so that the memo's key is the fingerprint and the memo keeps no vocabulary alive.
    cell = _memo(vocabulary.fingerprint, ignored, stop_ids)
    if not cell:
        cell.append(_resolve(ignored, stop_ids, vocabulary))
    return cell[0]


@lru_cache(maxsize=128)
def _memo(fingerprint: str, ignored: IgnoredNGrams, stop_ids: tuple[int, ...]) -> list[frozenset[tuple[int, ...]]]:  # noqa: ARG001
    return []


def _resolve(ignored: IgnoredNGrams, stop_ids: tuple[int, ...], vocabulary: Vocabulary) -> frozenset[tuple[int, ...]]:
    ngrams = set(ignored.ngrams)
    if IgnoredSet.STOP_TOKENS in ignored.sets:
        ngrams.update((token,) for token in (*vocabulary.eog_ids, *stop_ids))
    named = [text for name in ignored.sets for text in _NAMED.get(name, ())]
    encoder = vocabulary.encoder
    if named:
        ngrams.update((token,) for token, _ in _tokens_of({text.encode() for text in named}, vocabulary))
    if named and encoder is not None:
        encoded = (tuple(encoder.encode(text)) for text in named)
        ngrams.update(tokens for tokens in encoded if 1 <= len(tokens) <= MAX_NGRAM)
    if ignored.texts and encoder is None:
        ngrams.update(_single_tokens(ignored.texts, vocabulary))
    elif encoder is not None:
        ngrams.update(_encoded(encoder, i, text) for i, text in enumerate(ignored.texts))
    return frozenset(ngrams)


def _encoded(encoder: TextEncoder, i: int, text: bytes) -> tuple[int, ...]:
    field = f"{_TEXTS_FIELD}[{i}]"
    try:
        tokens = tuple(encoder.encode(text.decode()))
    except UnicodeDecodeError as error:
        raise InvalidField(field, f"byte {error.start} is not UTF-8, and only text can be tokenised") from None
    if not 1 <= len(tokens) <= MAX_NGRAM:
        raise InvalidField(field, f"{len(tokens)} tokens, yet an n-gram has 1 to {MAX_NGRAM}; shorten the text")
    return tokens


def _single_tokens(texts: tuple[bytes, ...], vocabulary: Vocabulary) -> Iterator[tuple[int, ...]]:
    found = list(_tokens_of(set(texts), vocabulary))
    spelt = {text for _, text in found}
    for i, text in enumerate(texts):
        if text not in spelt:
            raise InvalidField(
                f"{_TEXTS_FIELD}[{i}]",
                "no single token has these bytes, and the vocabulary has no encoder to split them; pass `ngrams`",
            )
    return ((token,) for token, _ in found)


def _tokens_of(texts: Collection[bytes], vocabulary: Vocabulary) -> Iterator[tuple[int, bytes]]:
    """Each token that spells one of the texts. Special ids have no bytes, and spell nothing."""
    return ((token, piece) for token, piece in enumerate(vocabulary.token_bytes) if piece and piece in texts)

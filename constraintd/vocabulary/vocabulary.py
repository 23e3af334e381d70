"""The Vocabulary: what every token id of one model stands for, as one immutable value."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from constraintd.errors import EogMissing, VocabularyError

MAX_IDS = 2**21
"""Most token ids, and widest logits row, that are taken: eight times the largest vocabulary in use."""

MAX_TOKEN_BYTES = 64 * 1024
"""Longest single token, in bytes. Real ones stay under 1 KiB; a longer one is a broken or hostile file."""

_FINGERPRINT_SCHEME = b"constraintd vocabulary 1\n"


class TextEncoder(Protocol):
    """Turns text into token ids, as the model's own tokenizer would."""

    @property
    def source_digest(self) -> str:
        """Hex sha256 of what the encoder was built from; part of the vocabulary's fingerprint."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text` alone: no BOS is added, and no special token is parsed out of the text."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Token id -> bytes, special ids, EOG ids, logits width, and the text encoder or its lack.

    Build it with `build_vocabulary`, which checks all of it and computes the fingerprint. Two
    vocabularies are equal iff their fingerprints are.
    """

    token_bytes: tuple[bytes, ...]
    """Index = id. As long as the ids that the tokenizer knows, so shorter or longer than the logits
    width. `b""` for special ids, holes and unused ids."""

    special: Mapping[int, str]
    """Special (control) id -> its spelling. A special id has no bytes: it is never part of text."""

    eog_ids: tuple[int, ...]
    """Ids that end a generation: ascending, at least one, each below `logits_width`. Such an id may
    carry text."""

    logits_width: int
    """Columns of the model's logits row. Ids at or past it are never legal."""

    bos_id: int | None
    """The id that begins a sequence, or None where the model has none (or none is known)."""

    encoder: TextEncoder | None
    """None for a bare table of token bytes: then only the caller can turn text into ids."""

    fingerprint: str
    """Hex sha256 over all of the above."""

    real_ids: NDArray[np.uint32]
    """The mask of "unconstrained": one bit for every id that exists below the logits width, that is, has
    bytes, is special, or is EOG; holes and padding columns are 0. Packed little-endian uint32 words, shape
    `((logits_width + 31) // 32,)`, bit i of word w = id 32w+i. Read-only."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return (
            f"Vocabulary({self.fingerprint[:12]}, ids={len(self.token_bytes)}, "
            f"special={len(self.special)}, eog_ids={self.eog_ids}, logits_width={self.logits_width})"
        )

    def bytes_of(self, token_id: int) -> bytes:
        """Bytes that `token_id` adds to the text: `b""` for special ids, holes and padding columns."""
        return self.token_bytes[token_id] if 0 <= token_id < len(self.token_bytes) else b""

    def text_of(self, token_ids: Sequence[int]) -> bytes:
        """Bytes that these ids, none of them negative, add to the text one after the other."""
        try:
            return b"".join(map(self.token_bytes.__getitem__, token_ids))
        except IndexError:  # a padding column
            return b"".join(map(self.bytes_of, token_ids))


def build_vocabulary(
    token_bytes: Sequence[bytes],
    special: Mapping[int, str],
    *,
    eog_ids: Iterable[int],
    logits_width: int | None = None,
    bos_id: int | None = None,
    encoder: TextEncoder | None = None,
) -> Vocabulary:
    """Check the parts of a vocabulary, put EOG ids in order, and stamp the fingerprint.

    `logits_width` None means: as many columns as ids are known. Special ids past the end of
    `token_bytes` lengthen it with holes.

    Raises VocabularyError for a table without any token, a width that is not in 1..MAX_IDS, a token
    over MAX_TOKEN_BYTES, a special id that has bytes, and an EOG or BOS id out of range; EogMissing
    if there is no EOG id.
    """
    known = max(len(token_bytes), 1 + max(special, default=-1))
    if known > MAX_IDS:
        raise VocabularyError(
            f"{known} token ids, the limit is {MAX_IDS}",
            location="token_bytes",
            remedy="check that the ids are token ids and not offsets or hashes",
        )
    table = (*token_bytes, *[b""] * (known - len(token_bytes)))
    _check_table(table, special)
    width = _checked_width(known if logits_width is None else logits_width)
    eog = _checked_eog(eog_ids, width)
    if bos_id is not None and not 0 <= bos_id < max(width, known):
        raise VocabularyError(
            f"BOS id {bos_id} is outside of the vocabulary's {known} ids",
            location="bos_id",
            remedy="pass the id that the model's tokenizer gives its begin-of-sequence token, or none",
        )
    return Vocabulary(
        token_bytes=table,
        special=MappingProxyType(dict(sorted(special.items()))),
        eog_ids=eog,
        logits_width=width,
        bos_id=bos_id,
        encoder=encoder,
        fingerprint=_fingerprint(table, special, eog, width, bos_id, encoder),
        real_ids=_real_ids(table, special, eog, width),
    )


def _real_ids(table: Sequence[bytes], special: Mapping[int, str], eog: Sequence[int], width: int) -> NDArray[np.uint32]:
    words = (width + 31) // 32
    exists = np.zeros(words * 32, dtype=np.bool_)  # (ids rounded up to whole words,)
    known = table[:width]
    exists[: len(known)] = np.fromiter(map(bool, known), dtype=np.bool_, count=len(known))
    exists[[token_id for token_id in special if token_id < width]] = True
    exists[list(eog)] = True
    packed = np.packbits(exists, bitorder="little").view("<u4")
    packed.flags.writeable = False
    return packed


def _check_table(table: Sequence[bytes], special: Mapping[int, str]) -> None:
    if not any(table):
        raise VocabularyError(
            "no token of this vocabulary has any bytes",
            location="token_bytes",
            remedy="a vocabulary needs at least one text token; was the right file passed?",
        )
    longest = max(range(len(table)), key=lambda token_id: len(table[token_id]))
    if len(table[longest]) > MAX_TOKEN_BYTES:
        raise VocabularyError(
            f"token {longest} is {len(table[longest])} bytes long, the limit is {MAX_TOKEN_BYTES}",
            location=f"token_bytes[{longest}]",
            remedy="drop the token or mark it unused",
        )
    for token_id, spelling in special.items():
        if token_id < 0:
            raise VocabularyError(
                f"special id {token_id} is negative", location="special", remedy="token ids count from 0"
            )
        if table[token_id]:
            raise VocabularyError(
                f"id {token_id} ({spelling!r}) is special but has bytes",
                location=f"token_bytes[{token_id}]",
                remedy="give a special id no bytes, or list it as text",
            )


def _checked_width(width: int) -> int:
    if not 1 <= width <= MAX_IDS:
        raise VocabularyError(
            f"logits width {width} is not in 1..{MAX_IDS}",
            location="logits_width",
            remedy="pass the last dimension of the model's logits (vocab_size in its config.json)",
        )
    return width


def _checked_eog(eog_ids: Iterable[int], width: int) -> tuple[int, ...]:
    ids = tuple(sorted(set(eog_ids)))
    if not ids:
        raise EogMissing(
            "no end-of-generation id is known",
            location="eog_ids",
            remedy="pass eog_ids, or a generation_config.json or tokenizer_config.json that names eos",
        )
    for token_id in ids:
        if not 0 <= token_id < width:
            raise VocabularyError(
                f"EOG id {token_id} is outside of the logits row of {width} columns",
                location="eog_ids",
                remedy="pass ids that the model can produce, or the right logits width",
            )
    return ids


def _fingerprint(
    table: Sequence[bytes],
    special: Mapping[int, str],
    eog_ids: Sequence[int],
    width: int,
    bos_id: int | None,
    encoder: TextEncoder | None,
) -> str:
    # Lengths go before contents, so that no two different vocabularies give the same stream of bytes.
    digest = hashlib.sha256(_FINGERPRINT_SCHEME)
    header = [width, -1 if bos_id is None else bos_id, len(eog_ids), *eog_ids, len(table), len(special)]
    digest.update(np.array(header, dtype="<i8").tobytes())
    digest.update(np.fromiter(map(len, table), dtype="<u4", count=len(table)).tobytes())
    digest.update(b"".join(table))
    for token_id, spelling in sorted(special.items()):
        # surrogatepass: a JSON file can spell a token with a lone surrogate, and that is no error here.
        name = spelling.encode("utf-8", "surrogatepass")
        digest.update(np.array([token_id, len(name)], dtype="<u4").tobytes() + name)
    digest.update(b"" if encoder is None else encoder.source_digest.encode("ascii"))
    return digest.hexdigest()

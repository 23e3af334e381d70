"""The plain table of token bytes: what a client in any language can make without a tokenizer library.

Packed encoding (`pack_table`, `parse_table`): an 8-byte magic, then one record for each id from 0 up,
without gaps, to the end of the data:

    magic    8 bytes   "CDTABLE" and the version, one byte: 0x01
    record   uint8     kind: 0 text, 1 special, 2 unused
             uint32    little-endian length n, 0..65536
             n bytes   text: the bytes that the token adds to the text
                       special: its spelling in UTF-8
                       unused: none (n must be 0)

The position of a record is its id; holes in the id space are unused records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from constraintd.errors import VocabularyError
from constraintd.vocabulary.tokenizer_contents import TokenizerContents
from constraintd.vocabulary.vocabulary import MAX_IDS, MAX_TOKEN_BYTES, Vocabulary, build_vocabulary

MAGIC = b"CDTABLE\x01"

_RECORD = struct.Struct("<BI")


class TokenKind(Enum):
    """What an id is; the value is its code in the packed encoding."""

    TEXT = 0
    SPECIAL = 1
    UNUSED = 2


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One id of a table. `content`: the text's bytes, a special token's spelling in UTF-8, or `b""`."""

    token_id: int
    kind: TokenKind
    content: bytes


def from_table(
    entries: Iterable[TokenEntry],
    *,
    eog_ids: Iterable[int],
    logits_width: int | None = None,
    bos_id: int | None = None,
) -> Vocabulary:
    """A vocabulary without a text encoder from entries in any order; ids that are absent are holes.

    `logits_width` None means highest id + 1. Raises VocabularyError: a repeated id, an id outside of
    0..MAX_IDS-1, a special spelling that is not UTF-8, an unused id with content, a text or special
    token without content; and everything that `build_vocabulary` raises.
    """
    contents = _contents(entries)
    return build_vocabulary(
        contents.token_bytes, contents.special, eog_ids=eog_ids, logits_width=logits_width, bos_id=bos_id
    )


def read_token_table(packed: bytes) -> TokenizerContents:
    """The contents of a packed table. Raises VocabularyError as `parse_table` and `from_table` do."""
    return _contents(parse_table(packed))


def pack_table(entries: Iterable[TokenEntry]) -> bytes:
    """The packed encoding of entries in any order; ids between them that are absent become unused."""
    by_id = {entry.token_id: entry for entry in entries}
    parts = [MAGIC]
    for token_id in range(1 + max(by_id, default=-1)):
        entry = by_id.get(token_id)
        kind = TokenKind.UNUSED if entry is None else entry.kind
        content = b"" if entry is None else entry.content
        parts += (_RECORD.pack(kind.value, len(content)), content)
    return b"".join(parts)


def pack_vocabulary(vocabulary: Vocabulary) -> bytes:
    """The packed encoding of a whole vocabulary; reading it back gives the same bytes and special ids."""
    return pack_table(
        TokenEntry(token_id, TokenKind.SPECIAL, vocabulary.special[token_id].encode("utf-8", "replace"))
        if token_id in vocabulary.special
        else TokenEntry(token_id, TokenKind.TEXT if content else TokenKind.UNUSED, content)
        for token_id, content in enumerate(vocabulary.token_bytes)
    )


def parse_table(packed: bytes) -> list[TokenEntry]:
    """Entries of a packed table, by ascending id.

    Raises VocabularyError, which names record and byte offset: wrong magic, unknown kind, a length
    over MAX_TOKEN_BYTES, data that ends inside a record, more than MAX_IDS records.
    """
    if packed[: len(MAGIC)] != MAGIC:
        raise VocabularyError(
            f"not a packed token table (it begins with {packed[:8]!r}, expected {MAGIC!r})",
            location="token table, byte 0",
            remedy="write the magic first, or name the format that this file has",
        )
    kinds = {kind.value: kind for kind in TokenKind}
    entries: list[TokenEntry] = []
    offset = len(MAGIC)
    size = len(packed)
    while offset < size:
        if len(entries) == MAX_IDS:
            raise _broken(f"more than {MAX_IDS} records", "list one record an id", entries, offset)
        if size - offset < _RECORD.size:
            raise _broken("the data ends inside a record's head", "send the whole table", entries, offset)
        code, length = _RECORD.unpack_from(packed, offset)
        content_at = offset + _RECORD.size
        kind = kinds.get(code)
        if kind is None:
            raise _broken(f"unknown kind {code}", "kinds are 0 text, 1 special, 2 unused", entries, offset)
        if length > MAX_TOKEN_BYTES:
            problem = f"a token of {length} bytes, the limit is {MAX_TOKEN_BYTES}"
            raise _broken(problem, "drop the token or mark it unused", entries, offset)
        if size - content_at < length:
            problem = f"the data ends inside a token of {length} bytes"
            raise _broken(problem, "send the whole table", entries, offset)
        offset = content_at + length
        entries.append(TokenEntry(len(entries), kind, packed[content_at:offset]))
    return entries


def _broken(problem: str, remedy: str, before: list[TokenEntry], offset: int) -> VocabularyError:
    where = f"token table, record {len(before)} at byte {offset}"
    return VocabularyError(problem, location=where, remedy=remedy)


def _contents(entries: Iterable[TokenEntry]) -> TokenizerContents:
    by_id: dict[int, TokenEntry] = {}
    for entry in entries:
        _check_entry(entry)
        if by_id.setdefault(entry.token_id, entry) is not entry:
            raise _bad(entry, f"id {entry.token_id} is listed twice", "list each id once")
    token_bytes = [b""] * (1 + max(by_id, default=-1))
    special: dict[int, str] = {}
    for entry in by_id.values():
        if entry.kind is TokenKind.TEXT:
            token_bytes[entry.token_id] = entry.content
        elif entry.kind is TokenKind.SPECIAL:
            special[entry.token_id] = _spelling(entry)
    return TokenizerContents(
        token_bytes=tuple(token_bytes),
        special=special,
        id_of_spelling={spelling: token_id for token_id, spelling in special.items()},
        bos_id=None,
        eos_id=None,
        encoder=None,
    )


def _check_entry(entry: TokenEntry) -> None:
    if not 0 <= entry.token_id < MAX_IDS:
        raise _bad(entry, f"id {entry.token_id} is not in 0..{MAX_IDS - 1}", "token ids count from 0")
    if len(entry.content) > MAX_TOKEN_BYTES:
        problem = f"a token of {len(entry.content)} bytes, the limit is {MAX_TOKEN_BYTES}"
        raise _bad(entry, problem, "drop the token or mark it unused")
    if entry.kind is TokenKind.UNUSED:
        if entry.content:
            raise _bad(entry, "an unused id has content", "leave the content empty or list it as text")
    elif not entry.content:
        kind = entry.kind.name.lower()
        raise _bad(entry, f"a {kind} token without content", "list an id that stands for nothing as unused")


def _bad(entry: TokenEntry, problem: str, remedy: str) -> VocabularyError:
    return VocabularyError(problem, location=f"entry for id {entry.token_id}", remedy=remedy)


def _spelling(entry: TokenEntry) -> str:
    try:
        return entry.content.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"the spelling of a special token is not UTF-8 ({error.reason} at byte {error.start})"
        raise _bad(entry, problem, "spell special tokens in UTF-8; they have no bytes of their own") from None

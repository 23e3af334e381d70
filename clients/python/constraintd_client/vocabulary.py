"""Vocabularies: what was registered, the table of token bytes, and the upload as messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from constraintd.v1 import vocabulary_pb2

from .errors import MalformedAnswer

CHUNK_BYTES: Final = 1 << 20
"""Bytes of a file that go into one upload message."""

# Layout of a TOKEN_TABLE file: see VocabularyChunk.data in the protocol.
_MAGIC: Final = b"CDTABLE\x01"
_TEXT, _SPECIAL, _HOLE = 0, 1, 2
_RECORD: Final = struct.Struct("<BI")


@dataclass(frozen=True, slots=True)
class VocabularyInfo:
    """A registered vocabulary."""

    vocabulary_id: str
    """64 hex digits, a hash of its content."""
    token_count: int
    """Highest token id + 1, holes included."""
    logits_width: int
    """Columns of the model's logits row."""
    eog_ids: tuple[int, ...]
    """End-of-generation ids, ascending."""
    bos_id: int | None
    """Beginning-of-sequence id, if the tokenizer names one."""
    has_encoder: bool
    """Whether the daemon can turn text into its tokens."""


@dataclass(frozen=True, slots=True)
class TokenTable:
    """What every token id spells."""

    info: VocabularyInfo
    tokens: tuple[bytes, ...]
    """Bytes of each token from id 0 on; empty for special tokens and for ids that no token has."""
    special: dict[int, str]
    """Spelling of each special token, by id."""

    def text(self, ids: Sequence[int]) -> bytes:
        """The bytes that these tokens spell; special tokens spell nothing. Raises IndexError past the
        table.
        """
        tokens = self.tokens
        return b"".join([tokens[token] for token in ids])


def info_of(message: vocabulary_pb2.Vocabulary) -> VocabularyInfo:
    """Translates a Vocabulary."""
    return VocabularyInfo(
        vocabulary_id=message.vocabulary_id,
        token_count=message.token_count,
        logits_width=message.logits_width,
        eog_ids=tuple(message.eog_ids),
        bos_id=message.bos_id if message.HasField("bos_id") else None,
        has_encoder=message.has_encoder,
    )


def encode_table(tokens: Sequence[bytes | None], special: Mapping[int, str]) -> bytes:
    """A TOKEN_TABLE file: `tokens` from id 0 on, None for a hole; an id in `special` overrides its entry
    there.
    """
    table = bytearray(_MAGIC)
    for token_id in range(max(len(tokens), max(special, default=-1) + 1)):
        text = tokens[token_id] if token_id < len(tokens) else None
        if token_id in special:
            kind, data = _SPECIAL, special[token_id].encode()
        elif text is not None:
            kind, data = _TEXT, text
        else:
            kind, data = _HOLE, b""
        table += _RECORD.pack(kind, len(data))
        table += data
    return bytes(table)


def table_of(messages: Sequence[vocabulary_pb2.GetVocabularyResponse]) -> TokenTable:
    """The table that a GetVocabulary answer gives. Raises MalformedAnswer if it can't be read."""
    if not messages or messages[0].WhichOneof("part") != "vocabulary":
        raise MalformedAnswer("the answer does not begin with the vocabulary")
    return parse_table(info_of(messages[0].vocabulary), b"".join(message.table for message in messages[1:]))


def parse_table(info: VocabularyInfo, table: bytes) -> TokenTable:
    """Reads a TOKEN_TABLE file. Raises MalformedAnswer where it breaks off or has an unknown kind."""
    tokens: list[bytes] = []
    special: dict[int, str] = {}
    if not table.startswith(_MAGIC):
        raise MalformedAnswer(f"the token table begins with {table[:8]!r}, expected {_MAGIC!r}")
    offset = len(_MAGIC)
    while offset < len(table):
        if offset + _RECORD.size > len(table):
            raise MalformedAnswer(f"the token table breaks off in the record of id {len(tokens)}")
        kind, length = _RECORD.unpack_from(table, offset)
        offset += _RECORD.size
        data = table[offset : offset + length]
        offset += length
        if len(data) != length or kind not in (_HOLE, _TEXT, _SPECIAL):
            raise MalformedAnswer(f"the token table's record of id {len(tokens)} is cut off or of unknown kind")
        if kind == _SPECIAL:
            special[len(tokens)] = data.decode(errors="replace")
        tokens.append(data if kind == _TEXT else b"")
    if len(tokens) != info.token_count:
        raise MalformedAnswer(f"the token table has {len(tokens)} records, expected {info.token_count}")
    return TokenTable(info, tuple(tokens), special)


def format_of(name: str | int) -> vocabulary_pb2.VocabularyFormat.ValueType:
    """The format of that name, such as "tokenizer_json", "sentencepiece", "token_table"; a value stays as
    it is.

    Raises ValueError for a name that there is not.
    """
    if isinstance(name, int):
        return vocabulary_pb2.VocabularyFormat.ValueType(name)
    return vocabulary_pb2.VocabularyFormat.Value(f"VOCABULARY_FORMAT_{name.upper()}")


def upload(
    format_name: str | int,
    tokenizer: bytes | Path,
    *,
    logits_width: int | None,
    eog_ids: Sequence[int],
    generation_config: bytes | Path | None,
    tokenizer_config: bytes | Path | None,
    special: Mapping[int, str] | None = None,
    pattern: str = "",
) -> Iterator[vocabulary_pb2.RegisterVocabularyRequest]:
    """The messages of one upload: the header, then every file in chunks.

    Files are read here and now, so that a missing one raises OSError to the caller and not inside gRPC.
    """
    header = vocabulary_pb2.VocabularyHeader(
        format=format_of(format_name),
        logits_width=logits_width,
        eog_ids=eog_ids,
        special_tokens=[
            vocabulary_pb2.SpecialToken(id=token, spelling=spelling.encode())
            for token, spelling in (special or {}).items()
        ],
        pattern=pattern.encode(),
    )
    sources = (
        (vocabulary_pb2.VOCABULARY_FILE_TOKENIZER, tokenizer),
        (vocabulary_pb2.VOCABULARY_FILE_GENERATION_CONFIG, generation_config),
        (vocabulary_pb2.VOCABULARY_FILE_TOKENIZER_CONFIG, tokenizer_config),
    )
    files = [
        (kind, source.read_bytes() if isinstance(source, Path) else source)
        for kind, source in sources
        if source is not None
    ]
    return _messages(header, files)


def _messages(
    header: vocabulary_pb2.VocabularyHeader,
    files: Sequence[tuple[vocabulary_pb2.VocabularyFile.ValueType, bytes]],
) -> Iterator[vocabulary_pb2.RegisterVocabularyRequest]:
    yield vocabulary_pb2.RegisterVocabularyRequest(header=header)
    for kind, data in files:
        # An empty file still sends one chunk: "there, and empty" is not "not there".
        for start in range(0, max(len(data), 1), CHUNK_BYTES):
            chunk = vocabulary_pb2.VocabularyChunk(file=kind, data=data[start : start + CHUNK_BYTES])
            yield vocabulary_pb2.RegisterVocabularyRequest(chunk=chunk)

"""Reads a vocabulary upload from its stream, within limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from constraintd.config import Limits
from constraintd.encoding import Reader, Writer
from constraintd.errors import InvalidField, TooLarge
from constraintd.translate import FORMATS
from constraintd.v1 import vocabulary_pb2
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from constraintd.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Upload:
    """The files of one upload and what its header says."""

    format: VocabularyFormat
    logits_width: int | None
    eog_ids: tuple[int, ...]
    special: dict[int, str]
    pattern: str | None
    tokenizer: bytes
    generation_config: bytes | None
    tokenizer_config: bytes | None


def upload_bytes(upload: Upload) -> bytes:
    """The upload in the canonical encoding, for stores."""
    writer = Writer()
    writer.text(upload.format.value)
    writer.signed(-1 if upload.logits_width is None else upload.logits_width)
    writer.numbers(upload.eog_ids)
    writer.numbers(list(upload.special))
    for spelling in upload.special.values():
        writer.text(spelling)
    for part in (upload.pattern and upload.pattern.encode(), upload.generation_config, upload.tokenizer_config):
        writer.flag(part is not None)
        writer.data(part or b"")
    writer.data(upload.tokenizer)
    return writer.getvalue()


def upload_of(data: bytes) -> Upload:
    """What `upload_bytes` wrote. Raises InvalidEnvelope."""
    reader = Reader(data, "vocabulary")
    format_ = VocabularyFormat(reader.text())
    width = reader.signed()
    eog_ids = reader.numbers()
    special = {token: reader.text() for token in reader.numbers()}
    pattern, generation_config, tokenizer_config = (
        part if given else None for given, part in [(reader.flag(), reader.data()) for _ in range(3)]
    )
    return Upload(
        format_,
        None if width < 0 else width,
        eog_ids,
        special,
        None if pattern is None else pattern.decode(),
        reader.data(),
        generation_config,
        tokenizer_config,
    )


def vocabulary_of(upload: Upload) -> Vocabulary:
    """The vocabulary that it is. Raises VocabularyError."""
    return load_vocabulary(
        upload.format,
        upload.tokenizer,
        logits_width=upload.logits_width,
        eog_ids=upload.eog_ids,
        generation_config=upload.generation_config,
        tokenizer_config=upload.tokenizer_config,
        special=upload.special or None,
        pattern=upload.pattern,
    )


async def read_upload(requests: AsyncIterator[vocabulary_pb2.RegisterVocabularyRequest], limits: Limits) -> Upload:
    """The whole upload. Raises InvalidField (order, format, empty, half-sent and idle uploads) and TooLarge."""
    messages = requests.__aiter__()
    first = await _next(messages, limits)
    if first is None or first.WhichOneof("part") != "header":
        raise InvalidField("header", "is missing; the first message of an upload is its header")
    header = first.header
    if header.format not in FORMATS:
        raise InvalidField("header.format", f"{header.format} is not a format that this server knows")
    files: dict[int, bytearray] = {}
    received = 0
    while (message := await _next(messages, limits)) is not None:
        if message.WhichOneof("part") != "chunk":
            raise InvalidField("header", "comes once, first; after it send only chunks")
        chunk = message.chunk
        if chunk.file not in vocabulary_pb2.VocabularyFile.values() or not chunk.file:
            raise InvalidField("chunk.file", f"{chunk.file} is not a file that this server knows")
        received += len(chunk.data)
        if received > limits.max_vocabulary_bytes:
            raise TooLarge("chunk.data", limit=limits.max_vocabulary_bytes, actual=received)
        files.setdefault(chunk.file, bytearray()).extend(chunk.data)
    tokenizer = files.pop(vocabulary_pb2.VOCABULARY_FILE_TOKENIZER, None)
    if not tokenizer:
        raise InvalidField("chunk.file", "no VOCABULARY_FILE_TOKENIZER came, or it is empty; send the tokenizer")
    generation_config = files.get(vocabulary_pb2.VOCABULARY_FILE_GENERATION_CONFIG)
    tokenizer_config = files.get(vocabulary_pb2.VOCABULARY_FILE_TOKENIZER_CONFIG)
    return Upload(
        FORMATS[header.format],
        header.logits_width if header.HasField("logits_width") else None,
        tuple(header.eog_ids),
        {token.id: _utf8(token.spelling, "header.special_tokens") for token in header.special_tokens},
        _utf8(header.pattern, "header.pattern") or None,
        bytes(tokenizer),
        None if generation_config is None else bytes(generation_config),
        None if tokenizer_config is None else bytes(tokenizer_config),
    )


def _utf8(text: bytes, field: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidField(field, f"not UTF-8 at byte {error.start}") from None


async def _next(
    messages: AsyncIterator[vocabulary_pb2.RegisterVocabularyRequest], limits: Limits
) -> vocabulary_pb2.RegisterVocabularyRequest | None:
    """The next message, or None at the end. An upload that stalls holds one of few places, so it is ended."""
    try:
        return await asyncio.wait_for(anext(messages), limits.upload_idle_seconds)
    except StopAsyncIteration:
        return None
    except TimeoutError:
        raise InvalidField(
            "chunk", f"none came for {limits.upload_idle_seconds:g} s; send the upload without pauses"
        ) from None

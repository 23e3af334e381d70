"""An exported session: a versioned, hashed envelope around its log and the state that the log leads to.

    16 bytes   magic          "constraintd sess"
     2 bytes   version        little-endian
    32 bytes   sha256         of what follows
               payload        in the canonical encoding (`constraintd.encoding`)

The payload names the session and its vocabulary, holds every grammar that its settings name, and its log. Reading
checks form and bounds alone; the importing daemon then compiles, folds, and compares the states.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from constraintd.encoding import Reader, Writer
from constraintd.errors import InvalidEnvelope
from constraintd.grammar.json_schema.report import Policy, PropertyOrder, SchemaOptions, Whitespace
from constraintd.grammar.source import Grammar, GrammarKind
from constraintd.sampler.finish import Finish, read_finish, write_finish
from constraintd.session.log import Log

_MAGIC = b"constraintd sess"
_VERSION = 1
_HEADER = len(_MAGIC) + 2 + 32


@dataclass(frozen=True, slots=True)
class MarkRecord:
    """A Mark of the log; `settings` is an index into the envelope's settings."""

    position: int
    settings: int
    seed: int
    prompt: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class SettingsRecord:
    """Settings as their caller asked for them, and the ids of the grammars that they came to."""

    source: bytes
    grammar_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an envelope holds."""

    session_id: bytes
    vocabulary_id: str
    grammars: tuple[Grammar, ...]
    settings: tuple[SettingsRecord, ...]
    marks: tuple[MarkRecord, ...]
    tokens: tuple[int, ...]
    surprisals: tuple[float, ...]
    passes: tuple[int, ...]
    finish: Finish | None
    state: bytes


def envelope_of(
    session_id: bytes, vocabulary_id: str, grammars: Mapping[str, Grammar], log: Log, state: bytes
) -> Envelope:
    """The envelope of a session; `grammars` are those that its settings hold, by id."""
    settings = list(dict.fromkeys(mark.settings for mark in log.marks))
    return Envelope(
        session_id,
        vocabulary_id,
        tuple(grammars[grammar_id] for grammar_id in sorted(grammars)),
        tuple(SettingsRecord(one.source, one.grammar_ids) for one in settings),
        tuple(MarkRecord(m.position, settings.index(m.settings), m.seed, m.prompt) for m in log.marks),
        tuple(log.tokens),
        tuple(log.surprisals),
        tuple(log.passes.lengths),
        log.finish,
        state,
    )


def pack(envelope: Envelope) -> bytes:
    """The bytes of an envelope: the same ones for the same session everywhere."""
    writer = Writer()
    writer.data(envelope.session_id)
    writer.text(envelope.vocabulary_id)
    writer.unsigned(len(envelope.grammars))
    for grammar in envelope.grammars:
        _write_grammar(writer, grammar)
    writer.unsigned(len(envelope.settings))
    for settings in envelope.settings:
        writer.data(settings.source)
        writer.unsigned(len(settings.grammar_ids))
        for grammar_id in settings.grammar_ids:
            writer.text(grammar_id)
    writer.unsigned(len(envelope.marks))
    for mark in envelope.marks:
        writer.unsigned(mark.position)
        writer.unsigned(mark.settings)
        writer.unsigned(mark.seed)
        writer.flag(mark.prompt is not None)
        if mark.prompt is not None:
            writer.numbers(mark.prompt)
    writer.numbers(envelope.tokens)
    writer.floats(envelope.surprisals)
    writer.numbers(envelope.passes)
    writer.flag(envelope.finish is not None)
    if envelope.finish is not None:
        write_finish(writer, envelope.finish)
    writer.data(envelope.state)
    payload = writer.getvalue()
    return _MAGIC + struct.pack("<H", _VERSION) + hashlib.sha256(payload).digest() + payload


def unpack(data: bytes) -> Envelope:
    """The envelope in these bytes, its form and bounds checked. Raises InvalidEnvelope."""
    if len(data) < _HEADER or data[: len(_MAGIC)] != _MAGIC:
        raise InvalidEnvelope("envelope: not an exported session, or cut off; give what ExportSession gave, whole")
    (version,) = struct.unpack_from("<H", data, len(_MAGIC))
    if version != _VERSION:
        raise InvalidEnvelope(f"envelope: version {version}; this daemon reads version {_VERSION}", version=version)
    payload = data[_HEADER:]
    if hashlib.sha256(payload).digest() != data[len(_MAGIC) + 2 : _HEADER]:
        raise InvalidEnvelope("envelope: its hash is not that of its contents: it was altered or cut off on the way")
    reader = Reader(payload, "envelope")
    envelope = Envelope(
        session_id=reader.data(),
        vocabulary_id=reader.text(),
        grammars=tuple(_read_grammar(reader) for _ in range(reader.count())),
        settings=tuple(
            SettingsRecord(reader.data(), tuple(reader.text() for _ in range(reader.count())))
            for _ in range(reader.count())
        ),
        marks=tuple(
            MarkRecord(
                reader.unsigned(),
                reader.unsigned(),
                reader.unsigned(),
                reader.numbers(below=1 << 32) if reader.flag() else None,
            )
            for _ in range(reader.count())
        ),
        tokens=reader.numbers(below=1 << 32),
        surprisals=reader.floats(),
        passes=reader.numbers(below=1 << 32),
        finish=read_finish(reader) if reader.flag() else None,
        state=reader.data(),
    )
    reader.end()
    _check(envelope)
    return envelope


def _check(envelope: Envelope) -> None:
    if len(envelope.session_id) != 16:
        raise _wrong("session_id", f"has {len(envelope.session_id)} bytes, expected 16")
    if len(envelope.surprisals) != len(envelope.tokens):
        raise _wrong("surprisals", f"{len(envelope.surprisals)} for {len(envelope.tokens)} tokens")
    for index, surprisal in enumerate(envelope.surprisals):
        if not (math.isfinite(surprisal) and surprisal >= 0 and _is_float32(surprisal)):
            raise _wrong(f"surprisals[{index}]", f"{surprisal} is no surprisal in bits")
    if not envelope.marks or envelope.marks[0].position or envelope.marks[0].prompt is None:
        raise _wrong("marks", "the log does not begin with an opening")
    before = 0
    for index, mark in enumerate(envelope.marks):
        if not before <= mark.position <= len(envelope.tokens):
            raise _wrong(f"marks[{index}].position", f"{mark.position} is out of order or past the tokens")
        if mark.settings >= len(envelope.settings):
            raise _wrong(f"marks[{index}].settings", f"there are no settings {mark.settings}")
        before = mark.position
    if 0 in envelope.passes:
        raise _wrong("passes", "a forward pass without a token")


def _is_float32(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False


def _wrong(location: str, problem: str) -> InvalidEnvelope:
    return InvalidEnvelope(f"envelope: {location}: {problem}", location=location)


def _write_grammar(writer: Writer, grammar: Grammar) -> None:
    writer.text(grammar.grammar_id)
    writer.text(grammar.kind.value)
    _write_texts(writer, grammar.texts)
    options = grammar.options
    _write_texts(writer, (options.policy.value, options.whitespace.value, options.property_order.value))
    writer.flag(options.formats_are_annotations)


def _read_grammar(reader: Reader) -> Grammar:
    grammar_id = reader.text()
    try:
        kind = GrammarKind(reader.text())
        texts = _read_texts(reader)
        policy, whitespace, order = _read_texts(reader)
        options = SchemaOptions(Policy(policy), Whitespace(whitespace), reader.flag(), PropertyOrder(order))
    except ValueError as error:
        raise reader.error(f"a grammar of an unknown kind or with unknown options: {error}") from None
    return Grammar(kind, texts, grammar_id, options)


def _write_texts(writer: Writer, texts: Sequence[str]) -> None:
    writer.unsigned(len(texts))
    for text in texts:
        writer.text(text)


def _read_texts(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.text() for _ in range(reader.count()))

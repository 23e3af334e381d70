"""Events as records: what a store keeps of a session, in the canonical encoding.

A record begins with its kind, one byte. Settings stand in it by the hashes of what they were made from (`SettingsRef`);
whoever reads records resolves those first, which may take a compilation.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from constraintd.encoding import Reader, Writer
from constraintd.sampler.finish import read_finish, write_finish
from constraintd.session.events import (
    Accepted,
    Event,
    Fed,
    Finished,
    Opened,
    Reconfigured,
    Request,
    SessionSettings,
    SettingsRef,
    Truncated,
    Turned,
)
from constraintd.session.log import Log, Mark
from constraintd.session.step_records import OTHER, WITH_ONE_PASS, read_step, read_steps

_OPENED, _ACCEPTED, _TRUNCATED, _RECONFIGURED, _TURNED, _FINISHED, _FED = range(1, 8)
_WITH_SETTINGS = re.compile(b"[%c%c%c]" % (_OPENED, _RECONFIGURED, _TURNED))
_ONE_OPENING = "an opening comes first, and once"
_MANY = 64  # records: reading fewer at once takes longer than one by one

Resolve = Callable[[SettingsRef, tuple[int, ...]], SessionSettings]
"""Settings by what names them and the prompt of the turn that they begin in."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a session was opened with besides its settings. `vocabulary_blob` is the hash of its upload, or empty."""

    vocabulary_id: str
    vocabulary_blob: bytes
    request_digest: bytes


def record_of(event: Event, origin: Origin | None = None) -> bytes:
    """The event's record; `origin` for Opened."""
    writer = Writer()
    match event:
        case Accepted(tokens, surprisals, passes):
            writer.unsigned(_ACCEPTED)
            writer.numbers(tokens)
            for surprisal in surprisals:
                writer.float(surprisal)
            writer.numbers(passes)
        case Opened(settings, prompt, seed):
            assert origin is not None
            writer.unsigned(_OPENED)
            writer.text(origin.vocabulary_id)
            writer.data(origin.vocabulary_blob)
            writer.data(origin.request_digest)
            _write_ref(writer, settings.ref)
            writer.numbers(prompt)
            writer.unsigned(seed)
        case Reconfigured(settings, seed, request):
            writer.unsigned(_RECONFIGURED)
            _write_ref(writer, settings.ref)
            writer.unsigned(seed)
            _write_request(writer, request)
        case Turned(settings, prompt, seed, request):
            writer.unsigned(_TURNED)
            _write_ref(writer, settings.ref)
            writer.numbers(prompt)
            writer.unsigned(seed)
            _write_request(writer, request)
        case Truncated(position, seed, request):
            writer.unsigned(_TRUNCATED)
            writer.unsigned(position)
            writer.unsigned(seed)
            _write_request(writer, request)
        case Finished(finish):
            writer.unsigned(_FINISHED)
            write_finish(writer, finish)
        case Fed(passes):
            writer.unsigned(_FED)
            writer.numbers(passes)
    return writer.getvalue()


@dataclass(frozen=True, slots=True)
class _Opening:
    """What the first record says."""

    origin: Origin
    ref: SettingsRef
    prompt: tuple[int, ...]
    seed: int


@lru_cache(maxsize=1)  # whoever brings a session back asks three times in a row; a prompt may be long
def _opening_of(record: bytes) -> _Opening:
    reader = Reader(record, "records[0]")
    if reader.unsigned() != _OPENED:
        raise reader.error("the log does not begin with an opening")
    origin = Origin(reader.text(), reader.data(), reader.data())
    opening = _Opening(origin, _read_ref(reader), reader.numbers(below=1 << 32), reader.unsigned())
    reader.end()
    return opening


def origin_of(records: Sequence[bytes]) -> Origin:
    """What the session was opened with. Raises InvalidEnvelope."""
    return _opening_of(records[0] if records else b"").origin


def is_finish(record: bytes) -> bool:
    """Whether the record is a finish."""
    return record[:1] == bytes([_FINISHED])


def refs_in(records: Sequence[bytes]) -> list[SettingsRef]:
    """The settings that the records name, each once. Raises InvalidEnvelope."""
    found: dict[SettingsRef, None] = {}
    kinds = b"".join([record[:1] or b"\0" for record in records])
    for index in [match.start() for match in _WITH_SETTINGS.finditer(kinds)]:
        if index:
            reader = Reader(records[index], f"records[{index}]")
            if reader.unsigned() == _OPENED:
                raise reader.error(_ONE_OPENING)
            found[_read_ref(reader)] = None
        else:
            found[_opening_of(records[0]).ref] = None
    return list(found)


def log_of(records: Iterable[bytes], resolve: Resolve) -> Log:
    """The log that the records come to. Raises InvalidEnvelope, and what `resolve` raises."""
    records = tuple(records)
    log = Log()
    opening = _opening_of(records[0] if records else b"")
    log.apply(Opened(resolve(opening.ref, opening.prompt), opening.prompt, opening.seed))
    steps = read_steps(records) if len(records) >= _MANY else None
    at = 1
    while at < len(records):
        step = read_step(records[at])
        if step is None or not log.step(*step):
            reader = Reader(records[at], f"records[{at}]")
            log.apply(_event_of(reader, log, resolve))
            reader.end()
        at += 1
        if steps is not None and steps.kinds[at - 1] != OTHER:
            end = steps.end_of_run(at - 1)
            one_pass = bool(steps.kinds[at - 1] == WITH_ONE_PASS)
            log.extend(steps.tokens[at:end], steps.surprisals[at:end], one_pass=one_pass)
            at = end
    return log


def _event_of(reader: Reader, log: Log, resolve: Resolve) -> Event:
    kind = reader.unsigned()
    if kind == _OPENED:
        raise reader.error(_ONE_OPENING)
    if kind == _ACCEPTED:
        tokens = reader.numbers(below=1 << 32)
        surprisals = array("f", [reader.float() for _ in tokens])
        if not all(math.isfinite(surprisal) and surprisal >= 0 for surprisal in surprisals):
            raise reader.error("a surprisal is negative or not finite")
        passes = reader.numbers(below=1 << 32)
        due = log.input_length()
        if 0 in passes or sum(passes) > due or (passes and due - sum(passes) > log.passes.fed):
            raise reader.error("forward passes don't come to the tokens before them")
        return Accepted(tokens, tuple(surprisals), passes)
    if kind == _RECONFIGURED:
        ref, seed, request = _read_ref(reader), reader.unsigned(), _read_request(reader)
        turn = max(log.turns(), key=lambda mark: mark.position)
        return Reconfigured(resolve(ref, turn.prompt or ()), seed, request)
    if kind == _TURNED:
        ref, prompt, seed = _read_ref(reader), reader.numbers(below=1 << 32), reader.unsigned()
        return Turned(resolve(ref, prompt), prompt, seed, _read_request(reader))
    if kind == _TRUNCATED:
        return Truncated(reader.unsigned(below=log.position + 1), reader.unsigned(), _read_request(reader))
    if kind == _FINISHED:
        return Finished(read_finish(reader))
    if kind == _FED:
        passes = reader.numbers(below=1 << 32)
        if 0 in passes or sum(passes) > log.input_length():
            raise reader.error("more was fed than there is")
        return Fed(passes)
    raise reader.error(f"{kind} is no kind of record")


def events_of(log: Log) -> Iterator[Event]:
    """The fewest events that come to this log, but for what it remembers of requests and of its last step."""
    taken = 0
    for index, mark in enumerate(log.marks):
        if mark.position > taken:
            yield _accepted(log, taken, mark.position)
            taken = mark.position
        if index == 0:
            yield Opened(mark.settings, mark.prompt or (), mark.seed)
        else:
            yield _changed(log.marks[index - 1], mark)
    if log.position > taken:
        yield _accepted(log, taken, log.position)
    if log.passes.lengths:
        yield Fed(tuple(log.passes.lengths))
    if log.finish is not None:
        yield Finished(log.finish)


def _accepted(log: Log, begin: int, end: int) -> Accepted:
    return Accepted(tuple(log.tokens[begin:end]), tuple(log.surprisals[begin:end]))


def _changed(before: Mark, mark: Mark) -> Event:
    if mark.prompt is not None:
        return Turned(mark.settings, mark.prompt, mark.seed)
    if mark.settings is before.settings:
        return Truncated(mark.position, mark.seed)
    return Reconfigured(mark.settings, mark.seed)


def _write_ref(writer: Writer, ref: SettingsRef) -> None:
    writer.data(ref.source)
    writer.unsigned(len(ref.grammars))
    for grammar in ref.grammars:
        writer.data(grammar)


def _read_ref(reader: Reader) -> SettingsRef:
    return SettingsRef(reader.data(), tuple(reader.data() for _ in range(reader.count())))


def _write_request(writer: Writer, request: Request | None) -> None:
    writer.flag(request is not None)
    if request is not None:
        writer.data(request.request_id)
        writer.data(request.digest)
        writer.unsigned(request.epoch)


def _read_request(reader: Reader) -> Request | None:
    return Request(reader.data(), reader.data(), reader.unsigned()) if reader.flag() else None

"""What the daemon and its compile helper say to each other over their socket.

A frame is a little-endian uint32 length and that many bytes. Requests are pickled: the helper trusts its daemon, and
the engines' own values travel whole. What is for a child goes behind a short Errand, and the helper hands it on unread.
Verdicts are JSON and checked field by field: a child that compiled a hostile grammar is trusted with nothing. What it
worked out in Python alone it says first, before the engine sees the grammar: the canonical text of a source, or what an
engine compiles. The daemon takes that from it, and is spared the reading.

Texts of 10 MB pass through here: each copy of one takes 1 ms, 6 where its memory is new to the process, so a large
frame is made in parts, and what is in it is taken as views of the frame.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import IO, Final, TypeAlias

from constraintd.errors import ConstraintdError, InvalidField, InvalidGrammar, LimitExceeded, TooLarge
from constraintd.grammar.source import LARGE_BYTES, Grammar, GrammarKind, GrammarSource
from constraintd.vocabulary.vocabulary import Vocabulary, build_vocabulary

LENGTH = struct.Struct("<I")
MAX_VERDICT_BYTES = 1 << 20
"""A child that says more than this is ended; so is one whose work product is larger than the next."""
MAX_PRODUCT_BYTES = 64 << 20
# Pickling holds the GIL: 36 ms for all of 260,000 texts, 0.5 for so many.
_TEXTS_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """What compiling and probing one grammar may take. The child that tries it is ended past any of them."""

    seconds: float = 10.0
    """Wall clock, and CPU time rounded up to whole seconds."""
    memory_bytes: int = 512 << 20
    """Address space over what the child began with."""
    stack_bytes: int = 4 << 20
    """Native stack: bounds how deep a grammar may nest. The daemon's own threads have four times as much."""
    step_seconds: float = 0.05
    """CPU time of the slowest mask or advance that the probe meets."""
    probe_steps: int = 50
    """Steps along each of the probe's paths."""

    def capped(self, cap: CompileLimits) -> CompileLimits:
        """These limits, each at most the cap's."""
        return CompileLimits(
            seconds=min(self.seconds, cap.seconds),
            memory_bytes=min(self.memory_bytes, cap.memory_bytes),
            stack_bytes=min(self.stack_bytes, cap.stack_bytes),
            step_seconds=min(self.step_seconds, cap.step_seconds),
            probe_steps=min(self.probe_steps, cap.probe_steps),
        )


# --- what the daemon sends ---


@dataclass(frozen=True, slots=True)
class AddVocabulary:
    """A vocabulary to compile for. `vocabulary_id` is the daemon's fingerprint; the text encoder stays behind."""

    vocabulary_id: str
    token_bytes: tuple[bytes, ...]
    special: dict[int, str]
    eog_ids: tuple[int, ...]
    logits_width: int
    bos_id: int | None

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> AddVocabulary:
        """The message for this vocabulary."""
        return cls(
            vocabulary.fingerprint,
            vocabulary.token_bytes,
            dict(vocabulary.special),
            vocabulary.eog_ids,
            vocabulary.logits_width,
            vocabulary.bos_id,
        )

    def vocabulary(self) -> Vocabulary:
        """The vocabulary again, without its encoder (its fingerprint is therefore another). Raises VocabularyError."""
        return build_vocabulary(
            self.token_bytes,
            self.special,
            eog_ids=self.eog_ids,
            logits_width=self.logits_width,
            bos_id=self.bos_id,
        )


@dataclass(frozen=True, slots=True)
class TryGrammar:
    """A grammar to compile and probe in a child. `number` names this try; the verdict carries it."""

    number: int
    vocabulary_id: str
    grammar: Grammar
    limits: CompileLimits

    @property
    def kind(self) -> GrammarKind:
        """The grammar's."""
        return self.grammar.kind

    @property
    def texts(self) -> Sequence[str]:
        """The grammar's."""
        return self.grammar.texts

    @property
    def errand(self) -> Errand:
        """What the helper reads of it."""
        return Errand(self.number, self.kind, self.limits, self.vocabulary_id)

    def with_texts(self, texts: Sequence[str]) -> TryGrammar:
        """The same about these texts."""
        return replace(self, grammar=replace(self.grammar, texts=tuple(texts)))


@dataclass(frozen=True, slots=True)
class ReadSource:
    """A source to read in a child, which says its one canonical text. `number` as in TryGrammar."""

    number: int
    source: GrammarSource
    max_bytes: int
    limits: CompileLimits

    @property
    def kind(self) -> GrammarKind:
        """The source's."""
        return self.source.kind

    @property
    def texts(self) -> Sequence[bytes]:
        """The source's."""
        return self.source.texts

    @property
    def errand(self) -> Errand:
        """What the helper reads of it."""
        return Errand(self.number, self.kind, self.limits)

    def with_texts(self, texts: Sequence[bytes]) -> ReadSource:
        """The same about these texts."""
        return replace(self, source=replace(self.source, texts=tuple(texts)))


@dataclass(frozen=True, slots=True)
class Errand:
    """What the helper itself reads of a request that is for a child."""

    number: int
    kind: GrammarKind
    limits: CompileLimits
    vocabulary_id: str | None = None
    """Whose engines the child needs, if any."""


@dataclass(frozen=True, slots=True)
class CancelTry:
    """Nobody waits for that try any more; it gets no verdict."""

    number: int


ChildsRequest: TypeAlias = TryGrammar | ReadSource
Request: TypeAlias = AddVocabulary | ChildsRequest | CancelTry


def request_frame(request: Request) -> list[bytes]:
    """The request as one frame, in parts to be sent one behind the other; a small one is one part."""
    match request:
        case TryGrammar() | ReadSource():
            head, rest = pickle.dumps(request.errand, protocol=5), pickled(request)
        case _:
            head, rest = pickle.dumps(request, protocol=5), []
    size = LENGTH.size + len(head) + sum(map(len, rest))
    parts = [LENGTH.pack(size) + LENGTH.pack(len(head)) + head, *rest]
    return parts if size > LARGE_BYTES else [b"".join(parts)]


def request_of(payload: memoryview) -> tuple[AddVocabulary | CancelTry | Errand, memoryview]:
    """The request in a frame of the daemon's, and behind an errand what is for the child."""
    end = LENGTH.size + LENGTH.unpack_from(payload)[0]
    return pickle.loads(payload[LENGTH.size : end]), payload[end:]


def pickled(request: ChildsRequest) -> list[bytes]:
    """The request for a child, in parts."""
    texts = request.texts
    pieces = [texts[begin : begin + _TEXTS_AT_ONCE] for begin in range(0, len(texts), _TEXTS_AT_ONCE)]
    return [pickle.dumps(part, protocol=5) for part in ((request.with_texts(()), len(pieces)), *pieces)]


def childs_request_of(file: IO[bytes]) -> ChildsRequest:
    """The request for a child that comes out of a file."""
    request, pieces = pickle.load(file)
    texts = [text for _ in range(pieces) for text in pickle.load(file)]
    whole: ChildsRequest = request.with_texts(texts)
    return whole


# --- what the helper answers ---


@dataclass(frozen=True, slots=True)
class Passed:
    """The grammar compiled and the probe came through, or the source could be read."""

    seconds: float
    """Compiling, without the probe."""
    step_seconds: float
    """CPU time of the slowest mask or advance."""
    steps: int
    """Steps that the probe took in all."""
    memory_bytes: int
    """Memory that the child's heap grew by: what the grammar and its lexer's states take, near enough."""
    product: bytes | memoryview = b""
    """What was worked out before the engine saw the grammar: `Engine.lower`'s bytes, or the canonical text in UTF-8."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The grammar is refused by an error of the protocol: its reason, message and metadata."""

    reason: str
    message: str
    metadata: Mapping[str, str]
    lasting: bool = True
    """The same grammar under the same limits will be refused again; false where the machine was to blame."""

    @classmethod
    def by(cls, error: ConstraintdError, *, lasting: bool = True) -> Refused:
        """The verdict that says what this error says."""
        return cls(error.reason, error.message, dict(error.metadata), lasting)

    def error(self) -> ConstraintdError:
        """The error again, a fresh object each time: raising one object over and over piles up its traceback."""
        kind = _REFUSALS.get(self.reason, ConstraintdError)
        error = kind.__new__(kind)  # some build their message themselves; this one has been built
        ConstraintdError.__init__(error, self.message, **self.metadata)
        return error


@dataclass(frozen=True, slots=True)
class Faulted:
    """The child's own code failed; `trace` is for the log."""

    trace: str


Verdict: TypeAlias = Passed | Refused | Faulted

_REFUSALS: Mapping[str, type[ConstraintdError]] = {
    kind.reason: kind for kind in (InvalidGrammar, LimitExceeded, TooLarge, InvalidField)
}
_VERDICTS: Mapping[str, type[Passed] | type[Refused] | type[Faulted]] = {
    kind.__name__: kind for kind in (Passed, Refused, Faulted)
}


_PRODUCT = b"="


def product_bytes(product: bytes) -> bytes:
    """The product of a child's work as it says it, in front of its verdict."""
    return _PRODUCT + LENGTH.pack(len(product)) + product


def verdict_bytes(verdict: Verdict) -> bytes:
    """The verdict as a child writes it, without its product."""
    fields = asdict(replace(verdict, product=b"") if isinstance(verdict, Passed) else verdict)
    fields.pop("product", None)
    return json.dumps([type(verdict).__name__, fields]).encode()


def verdict_of(said: bytes | memoryview) -> Verdict:
    """The verdict that a child wrote, with the product in front of it, a view. Raises ValueError for anything else."""
    product, payload = parted(said)
    if len(payload) > MAX_VERDICT_BYTES:
        raise ValueError(f"a verdict of {len(payload)} bytes")
    try:
        name, fields = json.loads(bytes(payload))
        match _VERDICTS[name](**fields):
            case Passed(float() | int(), float() | int(), int(), int(), b"") as verdict:
                return replace(verdict, product=product)
            case Refused(str(), str(), dict(metadata), bool()) as verdict if all(
                isinstance(value, str) for value in metadata.values()
            ):
                return verdict
            case Faulted(str()) as verdict:
                return verdict
    except (KeyError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a verdict: {error!r}") from None
    raise ValueError("not a verdict: a field has another type")


def most_said(said: bytes | bytearray) -> int:
    """How much a child may say that has begun so."""
    return MAX_VERDICT_BYTES + (MAX_PRODUCT_BYTES if said.startswith(_PRODUCT) else 0)


def parted(said: bytes | memoryview) -> tuple[bytes | memoryview, memoryview]:
    """Product and verdict, each as far as it has been said. Raises ValueError for a product without its length."""
    view = memoryview(said)
    if view[: len(_PRODUCT)] != _PRODUCT:
        return b"", view
    begin = len(_PRODUCT) + LENGTH.size
    if len(view) < begin:
        raise ValueError("a product without its length")
    end = begin + LENGTH.unpack_from(view, len(_PRODUCT))[0]
    return view[begin:end], view[end:]


MAX_ANSWER_BYTES: Final = LENGTH.size + len(product_bytes(b"")) + MAX_PRODUCT_BYTES + MAX_VERDICT_BYTES
"""What an answer's frame may have; the daemon ends a helper that says more."""


def answer_frame(number: int, said: bytes | bytearray | memoryview) -> list[bytes | bytearray | memoryview]:
    """What was said on a try, product and all, as one frame in parts; a small one is one part."""
    head = LENGTH.pack(LENGTH.size + len(said)) + LENGTH.pack(number)
    return [head, said] if len(said) > LARGE_BYTES else [head + said]


def answer_of(payload: memoryview) -> tuple[int, Verdict]:
    """A try's number and its verdict. Raises ValueError."""
    if len(payload) < LENGTH.size:
        raise ValueError("an answer without a number")
    return LENGTH.unpack_from(payload)[0], verdict_of(payload[LENGTH.size :])

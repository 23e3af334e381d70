"""llguidance behind the Matcher protocol: every kind of grammar but GBNF, as Lark (`grammar.lark_source`).

Everything is compiled through Lark with `no_forcing`: otherwise, where the grammar leaves one way on, the engine's mask
holds only the canonical token while it accepts others, and the mask would not be the truth.

The engine's methods don't raise: a bad grammar, a limit or an illegal token puts the matcher into an error state for
good, whose mask may still have EOG set. So every call here asks for that state afterwards.

Nor can it write its place: a place is here what it was fed, and restored by feeding it again.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance._lib import LLParserLimits
from numpy.typing import NDArray

from constraintd.encoding import Reader, Writer
from constraintd.engine.llguidance_twin import BYTES, ByteTokenizer, TokenizerTable, Twin, TwinGrammar
from constraintd.engine.region import PERMISSIVE_BYTES
from constraintd.errors import InvalidGrammar, LimitExceeded, ReplayDiverged
from constraintd.grammar.json_schema.report import KeywordReport
from constraintd.grammar.lark_source import LarkSource, to_lark
from constraintd.grammar.source import Grammar, GrammarKind
from constraintd.mask.packed import Words, empty, has, of_ids
from constraintd.vocabulary.engine_table import engine_table
from constraintd.vocabulary.vocabulary import Vocabulary

# 500 optional properties make 2,003 items in a row, past the engine's default of 2,000; 50,000 take 1,000 properties
# at 23 ms a compilation.
_LIMITS: Final = LLParserLimits(max_items_in_row=50_000, verbose_errors=False)
_ALL_BYTES: Final = (1 << BYTES) - 1
_REPLAYED_AT_ONCE: Final = 256
"""Tokens that are fed without letting another thread in: the engine holds the GIL, 5 us a token."""


class LlguidanceEngine:
    """llguidance for one vocabulary. Owns the engine's token trie; safe to use from many threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        table = engine_table(vocabulary)
        self._tokenizer = LLTokenizer(
            TokenizerTable(table.tokens, table.special_ids, vocabulary),  # type: ignore[arg-type]
            n_vocab=vocabulary.logits_width + BYTES,
            eos_token=list(vocabulary.eog_ids),
        )
        self._byte_tokenizer = ByteTokenizer(table.tokens, table.special_ids, vocabulary)
        self._trie = _Trie(vocabulary)
        self._special_token = {spelling: token for token, spelling in vocabulary.special.items()}.get

    def lower(self, grammar: Grammar) -> bytes:
        """The grammar as one Lark text, with its report. All of the reading that is Python's, which holds the GIL.

        Raises InvalidGrammar, LimitExceeded.
        """
        return to_lark(grammar, self._special_token).to_bytes()

    def compile(self, grammar: Grammar, lowered: bytes | memoryview = b"") -> LlguidanceGrammar:
        """Compiles and probes the first mask. Releases the GIL, but for lowering what comes without `lowered`.

        Raises InvalidGrammar with line:column where the engine names it, LimitExceeded; ValueError for bytes that
        `lower` never made.
        """
        source = LarkSource.from_bytes(lowered) if lowered else to_lark(grammar, self._special_token)
        matcher = LLMatcher(self._tokenizer, source.text, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise _compile_error(grammar, matcher.get_error())
        twin = TwinGrammar(self._byte_tokenizer, source.text, _LIMITS, counts_tokens=grammar.kind is GrammarKind.LARK)
        compiled = LlguidanceGrammar(
            grammar.grammar_id, self.vocabulary.fingerprint, source.report, matcher, self._trie, twin
        )
        words = empty(self.vocabulary.logits_width)
        compiled.start().fill_mask(words)
        if not words.any():
            raise InvalidGrammar(
                f"grammar.{grammar.kind.value}: no token of the vocabulary can begin a text of it; look for a "
                "reference or rule that leads only to itself, or a byte that the vocabulary has no token for"
            )
        return compiled


class _Trie(threading.local):
    """What the masks of one vocabulary are made with: its EOG and real ids, and one wide mask a thread."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.width = vocabulary.logits_width
        self.eog = of_ids(vocabulary.eog_ids, self.width)
        self.not_eog: Words = ~self.eog & vocabulary.real_ids
        self.wide = empty(self.width + BYTES)
        self.address: int = self.wide.ctypes.data  # 1 us a look-up
        self.nbytes = self.wide.nbytes
        first = self.width // 8
        self.byte_bits = memoryview(self.wide.view(np.uint8))[first : first + BYTES // 8 + 1]  # type: ignore[arg-type]
        self.shift = self.width % 8

    def legal_bytes(self) -> int:
        """The bits of the single bytes in the wide mask that was made last in this thread: bit b is byte b."""
        return int.from_bytes(self.byte_bits, "little") >> self.shift & _ALL_BYTES


@dataclass(frozen=True, slots=True)
class LlguidanceGrammar:
    """A compiled grammar. Its template matcher is only ever copied; a copy shares the compiled parts (1 to 80 us)."""

    grammar_id: str
    vocabulary_id: str
    report: tuple[KeywordReport, ...]
    """What is made of each keyword of a JSON Schema."""
    _template: LLMatcher
    _trie: _Trie
    _twin: TwinGrammar

    def start(self) -> LlguidanceMatcher:
        """A matcher before the first token."""
        return LlguidanceMatcher(self._template.deep_copy(), self._trie, self._twin, array("I"))

    def at(self, place: bytes) -> LlguidanceMatcher:
        """See MatcherSource. 5 us a token.

        Raises InvalidEnvelope for bytes that are no list of ids, ReplayDiverged for an id that is refused.
        """
        trie = self._trie
        reader = Reader(place, "place in a grammar")
        fed = array("I", reader.numbers(below=trie.width + BYTES))
        reader.end()
        for index, token in enumerate(fed):
            if token < trie.width and not has(trie.not_eog, token):
                raise _diverged(index, token)
        matcher = self._template.deep_copy()
        for index in range(0, len(fed), _REPLAYED_AT_ONCE):
            tokens = fed[index : index + _REPLAYED_AT_ONCE].tolist()
            taken = matcher.try_consume_tokens(tokens)
            if matcher.is_error():
                raise _gave_up(matcher)
            if taken < len(tokens):
                raise _diverged(index + taken, tokens[taken])
        return LlguidanceMatcher(matcher, trie, self._twin, fed)


class LlguidanceMatcher:
    """One session's place."""

    __slots__ = ("_fed", "_legal", "_matcher", "_trie", "_twin", "_twin_grammar")

    def __init__(self, matcher: LLMatcher, trie: _Trie, twin: TwinGrammar, fed: array[int]) -> None:
        """`fed` is what `matcher` has consumed: token ids, and logits width + byte for single bytes."""
        self._matcher = matcher
        self._trie = trie
        self._twin_grammar: TwinGrammar | None = twin  # None: no twin can be had
        self._twin: Twin | None = None
        self._fed = fed
        self._legal: int | None = None  # the legal bytes, if a mask was made since the last token

    def fill_mask(self, words: Words) -> None:
        """See Matcher. About 30 us, at most some 20 ms before the engine's own limits end it; releases the GIL."""
        trie = self._trie
        self._matcher.unsafe_compute_mask_ptr(trie.address, trie.nbytes)
        if self._matcher.is_error():
            # A dead end is an error state to the engine, with EOG set; here it is a mask without a bit.
            if not _is_dead_end(self._matcher):
                raise _gave_up(self._matcher)
            words[:] = 0
            self._legal = 0
            return
        self._legal = trie.legal_bytes()
        # The engine may set an EOG id for its text, or know only some of several: EOG is legal exactly at the end.
        np.bitwise_and(trie.wide[: len(words)], trie.not_eog, out=words)
        if self._matcher.is_accepting():
            np.bitwise_or(words, trie.eog, out=words)

    def consume(self, token: int) -> None:
        """See Matcher. About 5 us; holds the GIL."""
        self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise _gave_up(self._matcher)
        self._fed.append(token)
        self._legal = None

    def consume_all(self, tokens: Sequence[int]) -> None:
        """`consume` for each in turn: half the time where tokens are quick. Raises LimitExceeded."""
        for begin in range(0, len(tokens), _REPLAYED_AT_ONCE):
            if not self._matcher.consume_tokens(list(tokens[begin : begin + _REPLAYED_AT_ONCE])):
                raise _gave_up(self._matcher)
        self._fed.extend(tokens)
        self._legal = None

    def consume_bytes(self, data: bytes) -> bool:
        """See ByteMatcher."""
        tokens = [self._trie.width + byte for byte in data]
        if self._matcher.validate_tokens(tokens) < len(tokens):
            if self._matcher.is_error():
                raise _gave_up(self._matcher)
            return False
        if not self._matcher.consume_tokens(tokens):
            raise _gave_up(self._matcher)
        self._fed.extend(tokens)
        self._legal = None
        return True

    def is_accepting(self) -> bool:
        """See Matcher."""
        return self._matcher.is_accepting() and not self._matcher.is_error()

    def legal_bytes(self) -> NDArray[np.bool_]:
        """See ByteMatcher. 2 us where `fill_mask` was called at this place, else 2 to 5 us in the twin."""
        bits = np.frombuffer(self._legal_here().to_bytes(BYTES // 8, "little"), np.uint8)
        return np.unpackbits(bits, bitorder="little").view(np.bool_)

    def walk(self) -> LlguidanceWalk:
        """A PermissiveWalk from here."""
        return LlguidanceWalk(self._over_bytes().deep_copy(), self._trie, self._legal_here())

    def fork(self) -> LlguidanceMatcher:
        """See Matcher."""
        ahead = object.__new__(LlguidanceMatcher)
        ahead._matcher = self._matcher.deep_copy()
        ahead._trie = self._trie
        ahead._twin_grammar = self._twin_grammar
        ahead._twin = None if self._twin is None else self._twin.fork()
        ahead._fed = self._fed[:]
        ahead._legal = self._legal
        return ahead

    def place(self) -> bytes:
        """See Matcher: what it was fed. Two ways to one place differ."""
        writer = Writer()
        writer.numbers(self._fed)
        return writer.getvalue()

    def _legal_here(self) -> int:
        if self._legal is None:
            # On the twin itself: a copy takes longer the longer the text is, 0.1 ms at 4,096 tokens.
            matcher = self._over_bytes()
            if self._twin is None:
                matcher = matcher.deep_copy()
            self._legal = _legal_of(matcher, self._trie)
            if not self._legal:
                self._twin = None  # a dead end leaves it in an error state
        return self._legal

    def _over_bytes(self) -> LLMatcher:
        """The twin at this place, or the matcher itself where there is none; not to be changed."""
        if self._twin is None and self._twin_grammar is not None:
            self._twin = self._twin_grammar.start()
        if self._twin is None or not self._twin.catch_up(self._fed):
            self._twin = self._twin_grammar = None
            return self._matcher
        return self._twin.matcher


class LlguidanceWalk:
    """A PermissiveWalk by the engine's rollback. Owns its matcher; for the thread that made it."""

    __slots__ = ("_address", "_bits", "_legal", "_matcher", "_nbytes", "_origin", "_path", "_shift", "_width")

    def __init__(self, matcher: LLMatcher, trie: _Trie, legal: int) -> None:
        self._origin = matcher
        self._matcher = matcher.deep_copy()
        # A third of the time would go into looking these up in the thread's own.
        self._address, self._nbytes, self._bits, self._shift = trie.address, trie.nbytes, trie.byte_bits, trie.shift
        self._width = trie.width
        self._legal = [legal]
        self._path: list[int] = []

    def enter(self, byte: int) -> bool:
        """See PermissiveWalk. 2 to 4 us."""
        if not self._legal[-1] >> byte & 1:
            return False
        matcher, token = self._matcher, self._width + byte
        if not matcher.consume_token(token):
            raise _gave_up(matcher)
        if not matcher.is_accepting():
            matcher.unsafe_compute_mask_ptr(self._address, self._nbytes)
            legal = int.from_bytes(self._bits, "little") >> self._shift & _ALL_BYTES
            if matcher.is_error():
                if not _is_dead_end(matcher):
                    raise _gave_up(matcher)
                self._go_back()
                return False
            if legal.bit_count() >= PERMISSIVE_BYTES:
                self._legal.append(legal)
                self._path.append(token)
                return True
        self._go_back()
        return False

    def leave(self) -> None:
        """See PermissiveWalk."""
        self._legal.pop()
        self._path.pop()
        self._go_back()

    def _go_back(self) -> None:
        """To the end of the path, from one byte behind it."""
        # The engine has no way back from a dead end, nor in grammars with `max_tokens` or `stop`.
        if not self._matcher.rollback(1):
            self._matcher = self._origin.deep_copy()
            if not self._matcher.consume_tokens(self._path):
                raise _gave_up(self._matcher)


def _legal_of(matcher: LLMatcher, trie: _Trie) -> int:
    """The legal bytes at a matcher's place, as bits. At a dead end the matcher is in an error state afterwards."""
    matcher.unsafe_compute_mask_ptr(trie.address, trie.nbytes)
    if matcher.is_error():
        if not _is_dead_end(matcher):
            raise _gave_up(matcher)
        return 0
    return trie.legal_bytes()


def _is_dead_end(matcher: LLMatcher) -> bool:
    return _first_line(matcher.get_error()).startswith("NoExtension")


def _gave_up(matcher: LLMatcher) -> LimitExceeded:
    reason = matcher.stop_reason()
    detail = _first_line(matcher.get_error())
    return LimitExceeded(f"the grammar's engine gave up here ({reason}): {detail}", stop_reason=reason)


def _diverged(index: int, token: int) -> ReplayDiverged:
    return ReplayDiverged(
        f"element {index} of a place in a grammar, id {token}, is refused now: the grammar's engine is another than "
        "the one that took it",
        index=index,
    )


def _compile_error(grammar: Grammar, message: str) -> InvalidGrammar | LimitExceeded:
    """The engine says `at LINE(COLUMN): what`, then a picture of the place."""
    line = _first_line(message)
    name = f"grammar.{grammar.kind.value}"
    if "too" in line.lower() and ("large" in line.lower() or "complex" in line.lower() or "big" in line.lower()):
        return LimitExceeded(f"{name}: {line}; make the grammar smaller")
    if grammar.kind is GrammarKind.LARK and line.startswith("at ") and "):" in line:
        place, _, what = line[3:].partition("):")
        location = place.replace("(", ":")
        return InvalidGrammar(f"{name}: {what.strip()} at line:column {location}", location=location)
    return InvalidGrammar(f"{name}: {line.partition('): ')[2] or line}")


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0][:500] or "no reason given"

"""llguidance behind the Matcher protocol: every kind of grammar but GBNF, as Lark (`grammar.lark_source`).

Everything is compiled through Lark with `no_forcing`: otherwise, where the grammar leaves one way on, the engine's mask
holds only the canonical token while it accepts others, and the mask would not be the truth.

The engine's methods don't raise: a bad grammar, a limit or an illegal token puts the matcher into an error state for
good, whose mask may still have EOG set. So every call here asks for that state afterwards.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance._lib import LLParserLimits

from constraintd.errors import InvalidGrammar, LimitExceeded
from constraintd.grammar.json_schema.report import KeywordReport
from constraintd.grammar.lark_source import to_lark
from constraintd.grammar.source import Grammar, GrammarKind
from constraintd.mask.packed import Words, empty, of_ids
from constraintd.vocabulary.engine_table import engine_table
from constraintd.vocabulary.vocabulary import Vocabulary

# 500 optional properties make 2,003 items in a row, past the engine's default of 2,000; 50,000 take 1,000 properties
# at 23 ms a compilation.
_LIMITS: Final = LLParserLimits(max_items_in_row=50_000, verbose_errors=False)
# Tokens of one byte each, behind the logits width: they reach no mask, and feed texts that a token only partly
# belongs to.
_BYTES: Final = 256


class LlguidanceEngine:
    """llguidance for one vocabulary. Owns the engine's token trie; safe to use from many threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._tokenizer = LLTokenizer(
            _TokenizerTable(vocabulary),  # type: ignore[arg-type]
            n_vocab=vocabulary.logits_width + _BYTES,
            eos_token=list(vocabulary.eog_ids),
        )
        self._trie = _Trie(vocabulary)
        self._special_token = {spelling: token for token, spelling in vocabulary.special.items()}.get

    def compile(self, grammar: Grammar) -> LlguidanceGrammar:
        """Compiles and probes the first mask. Releases the GIL.

        Raises InvalidGrammar with line:column where the engine names it, LimitExceeded.
        """
        source = to_lark(grammar, self._special_token)
        matcher = LLMatcher(self._tokenizer, source.text, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise _compile_error(grammar, matcher.get_error())
        compiled = LlguidanceGrammar(
            grammar.grammar_id, self.vocabulary.fingerprint, source.report, matcher, self._trie
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
        self.wide = empty(self.width + _BYTES)


class _TokenizerTable:
    """What LLTokenizer reads of a vocabulary: an object with these attributes and a call that encodes bytes."""

    is_tokenizer_wrapper = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        table = engine_table(vocabulary)
        self.tokens = [*table.tokens, *(bytes([byte]) for byte in range(_BYTES))]
        self.special_token_ids = table.special_ids
        self.eos_token_id = vocabulary.eog_ids[0]
        self.bos_token_id = vocabulary.bos_id

    def __call__(self, text: bytes | str) -> list[int]:
        """Never needed: the engine encodes text only for forced tokens, and `no_forcing` is on."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class LlguidanceGrammar:
    """A compiled grammar. Its template matcher is only ever copied; a copy shares the compiled parts (1 to 80 us)."""

    grammar_id: str
    vocabulary_id: str
    report: tuple[KeywordReport, ...]
    """What is made of each keyword of a JSON Schema."""
    _template: LLMatcher
    _trie: _Trie

    def start(self) -> LlguidanceMatcher:
        """A matcher before the first token."""
        return LlguidanceMatcher(self._template.deep_copy(), self._trie)


class LlguidanceMatcher:
    """One session's place."""

    __slots__ = ("_matcher", "_trie")

    def __init__(self, matcher: LLMatcher, trie: _Trie) -> None:
        self._matcher = matcher
        self._trie = trie

    def fill_mask(self, words: Words) -> None:
        """See Matcher. About 30 us, at most some 20 ms before the engine's own limits end it; releases the GIL."""
        trie = self._trie
        self._matcher.unsafe_compute_mask_ptr(trie.wide.ctypes.data, trie.wide.nbytes)
        if self._matcher.is_error():
            # A dead end is an error state to the engine, with EOG set; here it is a mask without a bit.
            if not _first_line(self._matcher.get_error()).startswith("NoExtension"):
                raise self._gave_up()
            words[:] = 0
            return
        # The engine may set an EOG id for its text, or know only some of several: EOG is legal exactly at the end.
        np.bitwise_and(trie.wide[: len(words)], trie.not_eog, out=words)
        if self._matcher.is_accepting():
            np.bitwise_or(words, trie.eog, out=words)

    def consume(self, token: int) -> None:
        """See Matcher. About 5 us; holds the GIL."""
        self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise self._gave_up()

    def consume_bytes(self, data: bytes) -> bool:
        """See ByteMatcher."""
        tokens = [self._trie.width + byte for byte in data]
        if self._matcher.validate_tokens(tokens) < len(tokens):
            if self._matcher.is_error():
                raise self._gave_up()
            return False
        if not self._matcher.consume_tokens(tokens):
            raise self._gave_up()
        return True

    def is_accepting(self) -> bool:
        """See Matcher."""
        return self._matcher.is_accepting() and not self._matcher.is_error()

    def fork(self) -> LlguidanceMatcher:
        """See Matcher."""
        return LlguidanceMatcher(self._matcher.deep_copy(), self._trie)

    def _gave_up(self) -> LimitExceeded:
        reason = self._matcher.stop_reason()
        detail = _first_line(self._matcher.get_error())
        return LimitExceeded(f"the grammar's engine gave up here ({reason}): {detail}", stop_reason=reason)


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

"""llguidance behind the Matcher protocol: json_schema, json_object, regex, lark, choice.

Everything is compiled through Lark with `no_forcing`: otherwise, where the grammar leaves one way on, the engine's mask
holds only the canonical token while it accepts others, and the mask would not be the truth.

The engine's methods don't raise: a bad grammar, a limit or an illegal token puts the matcher into an error state for
good, whose mask may still have EOG set. So every call here asks for that state afterwards.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance._lib import LLParserLimits, regex_to_lark

from constraintd.engine.matcher import Matcher
from constraintd.errors import InvalidGrammar, LimitExceeded
from constraintd.grammar.source import Grammar, GrammarKind
from constraintd.mask.packed import Words, empty, of_ids
from constraintd.vocabulary.engine_table import engine_table
from constraintd.vocabulary.vocabulary import Vocabulary

# White space between JSON's parts: some, never without end. Deep indentation fits, endless padding doesn't.
_JSON_OPTIONS: Final = {
    "whitespace_pattern": r"[ \n\t\r]{1,64}",
    "json_allow_general_unicode_escapes": True,
}
# 500 optional properties make 2,003 items in a row, past the engine's default of 2,000; 50,000 take 1,000 properties
# at 23 ms a compilation.
_LIMITS: Final = LLParserLimits(max_items_in_row=50_000, verbose_errors=False)
# Last in the text: a later directive wins over the user's own, and line numbers in errors stay the user's.
_NO_FORCING: Final = '\n%llguidance {"no_forcing": true}\n'


class LlguidanceEngine:
    """llguidance for one vocabulary. Owns the engine's token trie; safe to use from many threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._tokenizer = LLTokenizer(
            _TokenizerTable(vocabulary),  # type: ignore[arg-type]
            n_vocab=vocabulary.logits_width,
            eos_token=list(vocabulary.eog_ids),
        )
        self._eog = of_ids(vocabulary.eog_ids, vocabulary.logits_width)
        self._real = vocabulary.real_ids

    def compile(self, grammar: Grammar) -> LlguidanceGrammar:
        """Compiles and probes the first mask. Releases the GIL.

        Raises InvalidGrammar with line:column where the engine names it, LimitExceeded.
        """
        matcher = LLMatcher(self._tokenizer, to_lark(grammar), log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise _compile_error(grammar, matcher.get_error())
        compiled = LlguidanceGrammar(grammar.grammar_id, self.vocabulary.fingerprint, matcher, self._eog, self._real)
        words = empty(self.vocabulary.logits_width)
        compiled.start().fill_mask(words)
        if not words.any():
            raise InvalidGrammar(
                f"grammar.{grammar.kind.value}: no token of the vocabulary can begin a text of it; look for a "
                "reference or rule that leads only to itself, or a byte that the vocabulary has no token for"
            )
        return compiled


class _TokenizerTable:
    """What LLTokenizer reads of a vocabulary: an object with these attributes and a call that encodes bytes."""

    is_tokenizer_wrapper = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        table = engine_table(vocabulary)
        self.tokens = table.tokens
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
    _template: LLMatcher
    _eog: Words
    _real: Words

    def start(self) -> LlguidanceMatcher:
        """A matcher before the first token."""
        return LlguidanceMatcher(self._template.deep_copy(), self._eog, self._real)


class LlguidanceMatcher:
    """One session's place."""

    __slots__ = ("_eog", "_matcher", "_real")

    def __init__(self, matcher: LLMatcher, eog: Words, real: Words) -> None:
        self._matcher = matcher
        self._eog = eog
        self._real = real

    def fill_mask(self, words: Words) -> None:
        """See Matcher. About 30 us, at most some 20 ms before the engine's own limits end it; releases the GIL."""
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if self._matcher.is_error():
            # A dead end is an error state to the engine, with EOG set; here it is a mask without a bit.
            if not _first_line(self._matcher.get_error()).startswith("NoExtension"):
                raise self._gave_up()
            words[:] = 0
            return
        # The engine may set an EOG id for its text, or know only some of several: EOG is legal exactly at the end.
        np.bitwise_and(words, ~self._eog, out=words)
        if self._matcher.is_accepting():
            np.bitwise_or(words, self._eog, out=words)
        np.bitwise_and(words, self._real, out=words)

    def consume(self, token: int) -> None:
        """See Matcher. About 5 us; holds the GIL."""
        self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise self._gave_up()

    def is_accepting(self) -> bool:
        """See Matcher."""
        return self._matcher.is_accepting() and not self._matcher.is_error()

    def fork(self) -> Matcher:
        """See Matcher."""
        return LlguidanceMatcher(self._matcher.deep_copy(), self._eog, self._real)

    def _gave_up(self) -> LimitExceeded:
        reason = self._matcher.stop_reason()
        detail = _first_line(self._matcher.get_error())
        return LimitExceeded(f"the grammar's engine gave up here ({reason}): {detail}", stop_reason=reason)


def to_lark(grammar: Grammar) -> str:
    """The grammar as one Lark text with `no_forcing`. Raises InvalidGrammar for engine options inside a schema."""
    match grammar.kind:
        case GrammarKind.LARK:
            source = grammar.texts[0]
        case GrammarKind.REGEX:
            source = f"start: /{regex_to_lark(grammar.texts[0], use_ascii='')}/"
        case GrammarKind.CHOICE:
            # One terminal: the lexer decides among thousands at once, where rules would each add an item a row.
            source = "start: CHOICE\nCHOICE: " + " | ".join(_lark_string(text) for text in grammar.texts)
        case GrammarKind.JSON_OBJECT:
            source = "start: %json " + _with_options('{"type":"object"}')
        case GrammarKind.JSON_SCHEMA:
            source = "start: %json " + _with_options(grammar.texts[0])
    return source + _NO_FORCING


def _with_options(schema: str) -> str:
    """The canonical schema with the engine's options put in front, its own text untouched."""
    document = json.loads(schema)
    options = json.dumps({"x-guidance": _JSON_OPTIONS})
    if document is True:
        return options
    if not isinstance(document, dict):
        if document is False:
            raise InvalidGrammar("grammar.json_schema: the schema is false, which nothing satisfies")
        raise InvalidGrammar("grammar.json_schema: a JSON Schema is an object or a boolean", location="/")
    if "x-guidance" in document:
        raise InvalidGrammar(
            "grammar.json_schema: x-guidance holds engine options and is no part of JSON Schema; take it out",
            location="/x-guidance",
        )
    return f"{options[:-1]},{schema[1:]}" if document else options


def _lark_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


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

"""The same grammar for the engine over single bytes: what may come next as bytes, without going through all tokens.

A mask over 49,152 tokens costs 1 us inside a plain JSON string, but 17 us in one with a `maxLength` and 700 us in a
regex with counted repetition; over the 256 bytes it costs 1 to 4 us everywhere. So a matcher that is asked about bytes
keeps a twin that walks behind it, made when it is first asked. Both give the same answers; the twin is only faster.

The twin's tokens have the ids of the vocabulary, and none but special ones and those of one byte have any bytes. What
it is fed is the same text, but for grammars that name text tokens by their id or count tokens: those have no twin.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Sequence
from typing import Final

from llguidance import LLMatcher, LLTokenizer
from llguidance._lib import LLParserLimits

from constraintd.vocabulary.vocabulary import Vocabulary

BYTES: Final = 256
"""Tokens of one byte each, behind the logits width: they reach no mask, and feed texts that a token only partly
belongs to."""

_MAX_SOURCE: Final = 1 << 16
"""Characters of a grammar that has a twin. 64 KiB compile in some 20 ms; 5,000 properties would take seconds, in the
middle of somebody's step."""

_TOKEN_REFERENCE: Final = re.compile(r"<\[([^\]]*)\]?")
_COUNTED_TOKENS: Final = "max_tokens"


class TokenizerTable:
    """What LLTokenizer reads of a vocabulary: an object with these attributes and a call that encodes bytes."""

    is_tokenizer_wrapper = True

    def __init__(self, tokens: Sequence[bytes], special_ids: Sequence[int], vocabulary: Vocabulary) -> None:
        """`tokens` are as many as the logits width; those of one byte each come behind them."""
        self.tokens = [*tokens, *(bytes([byte]) for byte in range(BYTES))]
        self.special_token_ids = special_ids
        self.eos_token_id = vocabulary.eog_ids[0]
        self.bos_token_id = vocabulary.bos_id

    def __call__(self, text: bytes | str) -> list[int]:
        """Never needed: the engine encodes text only for forced tokens, and `no_forcing` is on."""
        raise NotImplementedError


class ByteTokenizer:
    """The engine's tokenizer with special tokens and single bytes only, made when first needed. Thread-safe."""

    def __init__(self, tokens: Sequence[bytes], special_ids: Sequence[int], vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tokens = tokens
        self.special_ids = frozenset(special_ids)
        self._made: LLTokenizer | None = None
        self._lock = threading.Lock()

    def get(self) -> LLTokenizer:
        """The tokenizer. The first call takes 20 to 50 ms."""
        with self._lock:
            if self._made is None:
                vocabulary = self._vocabulary
                kept = self.special_ids.union(vocabulary.eog_ids)
                tokens = [text if token in kept else b"" for token, text in enumerate(self._tokens)]
                self._made = LLTokenizer(
                    TokenizerTable(tokens, sorted(self.special_ids), vocabulary),  # type: ignore[arg-type]
                    n_vocab=vocabulary.logits_width + BYTES,
                    eos_token=list(vocabulary.eog_ids),
                )
            return self._made

    def fed(self, ids: Sequence[int]) -> list[int]:
        """The same text for the twin: special tokens and single bytes as they are, other tokens as their bytes."""
        width = self._vocabulary.logits_width
        table = self._vocabulary.token_bytes
        out: list[int] = []
        for token in ids:
            if token >= width or token in self.special_ids:
                out.append(token)
            else:
                out.extend([width + byte for byte in table[token]])
        return out


class TwinGrammar:
    """The twin of one compiled grammar, compiled when first needed. Thread-safe."""

    def __init__(self, tokenizer: ByteTokenizer, source: str, limits: LLParserLimits, *, counts_tokens: bool) -> None:
        """`source` is the Lark text; `counts_tokens` whether a `max_tokens` in it is the engine's attribute."""
        self._tokenizer = tokenizer
        self._source = source
        self._limits = limits
        self._template: LLMatcher | None = None
        self._lock = threading.Lock()
        counted = counts_tokens and _COUNTED_TOKENS in source
        named = (reference.group(1) for reference in _TOKEN_REFERENCE.finditer(source))
        self._exists = (
            len(source) <= _MAX_SOURCE
            and not counted
            and all(name.isdecimal() and int(name) in tokenizer.special_ids for name in named)
        )

    def start(self) -> Twin | None:
        """A twin before the first token; None where the grammar has none."""
        with self._lock:
            if self._exists and self._template is None:
                self._template = LLMatcher(self._tokenizer.get(), self._source, log_level=0, limits=self._limits)
                self._exists = not self._template.is_error()
            return Twin(self._template.deep_copy(), self._tokenizer) if self._exists and self._template else None


class Twin:
    """One session's place in the twin, as far as it has walked."""

    __slots__ = ("_fed", "_tokenizer", "matcher")

    def __init__(self, matcher: LLMatcher, tokenizer: ByteTokenizer, fed: int = 0) -> None:
        self.matcher = matcher
        self._tokenizer = tokenizer
        self._fed = fed

    def catch_up(self, fed: array[int]) -> bool:
        """Goes on to where all of `fed` was consumed; False, for good, if the engine gives up on the way."""
        if self._fed < len(fed):
            behind = self._tokenizer.fed(fed[self._fed :])
            if not self.matcher.consume_tokens(behind):
                return False
            self._fed = len(fed)
        return True

    def fork(self) -> Twin:
        """A second twin at the same place."""
        return Twin(self.matcher.deep_copy(), self._tokenizer, self._fed)

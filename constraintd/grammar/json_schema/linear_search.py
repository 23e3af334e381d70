"""Does a text match an ECMA-262 pattern? In time linear in the text, whatever the pattern.

Python's `re` backtracks and holds the GIL, so one crafted pattern and output would stop the daemon. llguidance matches
by derivatives; a JSON string schema on a vocabulary of single bytes makes it a plain matcher. RE2 would be more
independent, but reads nested classes otherwise than the respelled patterns mean them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from llguidance import LLMatcher, LLTokenizer

from constraintd.grammar.json_schema.ecma import UnsupportedPattern, engine_pattern

_EOG: Final = 256
_KEPT: Final = 256


class LinearSearch:
    """Owns a byte-level tokenizer of the engine and the compiled patterns; safe to use from many threads."""

    def __init__(self) -> None:
        self._tokenizer = LLTokenizer(_Bytes(), n_vocab=_EOG + 1, eos_token=[_EOG])  # type: ignore[arg-type]
        self._compiled: Callable[[str], LLMatcher | None] = lru_cache(maxsize=_KEPT)(self._compile)

    def __call__(self, pattern: str, text: str) -> bool | None:
        """Whether it matches anywhere; None for a pattern that the engine can't take, or past its limits."""
        template = self._compiled(pattern)
        if template is None:
            return None
        matcher = template.deep_copy()
        # The engine's strings have no raw DEL.
        spelled = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f").encode("utf-8", "surrogatepass")
        taken = matcher.try_consume_tokens(list(spelled))
        if matcher.is_error():
            return None
        return taken == len(spelled) and matcher.is_accepting()

    def _compile(self, pattern: str) -> LLMatcher | None:
        try:
            schema = {
                "x-guidance": {"json_allow_general_unicode_escapes": True},
                "type": "string",
                "pattern": engine_pattern(pattern),
            }
        except UnsupportedPattern:
            return None
        grammar = f'start: %json {json.dumps(schema)}\n%llguidance {{"no_forcing": true}}'
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        return None if matcher.is_error() else matcher


class _Bytes:
    """A vocabulary of the 256 bytes and an end, as LLTokenizer reads one."""

    is_tokenizer_wrapper = True
    tokens: Final = [bytes([byte]) for byte in range(256)] + [b""]
    special_token_ids: Final = [_EOG]
    eos_token_id: Final = _EOG
    bos_token_id: Final = None

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)

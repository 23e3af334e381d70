"""Which texts llguidance takes for a prepared schema, token by token on a vocabulary of single bytes."""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from constraintd.grammar.json_schema import PreparedSchema, SchemaOptions, Verdict, prepare_schema


class _Bytes:
    is_tokenizer_wrapper = True
    tokens = [bytes([byte]) for byte in range(256)] + [b""]
    special_token_ids = [256]  # noqa: RUF012
    eos_token_id = 256
    bos_token_id = None

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


_TOKENIZER = LLTokenizer(_Bytes(), n_vocab=257, eos_token=[256])  # type: ignore[arg-type]


class Prepared:
    """A schema after prepare_schema, compiled."""

    def __init__(self, schema: Any, options: SchemaOptions | None = None) -> None:
        self.prepared: PreparedSchema = prepare_schema(json.dumps(schema), options or SchemaOptions())
        grammar = f'start: %json {self.prepared.engine_json}\n%llguidance {{"no_forcing": true}}\n'
        self._matcher = LLMatcher(_TOKENIZER, grammar, log_level=0)
        assert not self._matcher.is_error(), self._matcher.get_error()

    def takes(self, text: str) -> bool:
        """Whether the text is allowed from first byte to end."""
        matcher = self._matcher.deep_copy()
        taken = matcher.try_consume_tokens(list(text.encode()))
        return taken == len(text.encode()) and matcher.is_accepting()

    def verdict(self, pointer: str) -> Verdict:
        """The verdict on the keyword at a pointer."""
        return next(entry.verdict for entry in self.prepared.report if entry.pointer == pointer)

    def detail(self, pointer: str) -> str:
        """The sentence beside it."""
        return next(entry.detail for entry in self.prepared.report if entry.pointer == pointer)

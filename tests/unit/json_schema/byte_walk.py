"""Which texts llguidance takes for a prepared schema, token by token on a vocabulary of single bytes."""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from constraintd.grammar.json_schema import SchemaOptions, Verdict, prepare_lark, prepare_schema


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
    """A schema after prepare_schema, or with `any_order` after prepare_lark, compiled."""

    def __init__(self, schema: Any, options: SchemaOptions | None = None, *, any_order: bool = False) -> None:
        text, options = json.dumps(schema), options or SchemaOptions()
        if any_order:
            lark = prepare_lark(text, options)
            self.lark, self.report = lark.text, lark.report
        else:
            prepared = prepare_schema(text, options)
            self.lark, self.report = f"start: %json {prepared.engine_json}", prepared.report
        grammar = f'{self.lark}\n%llguidance {{"no_forcing": true}}\n'
        self._matcher = LLMatcher(_TOKENIZER, grammar, log_level=0)
        assert not self._matcher.is_error(), self._matcher.get_error()

    def takes(self, text: str) -> bool:
        """Whether the text is allowed from first byte to end."""
        matcher = self._matcher.deep_copy()
        taken = matcher.try_consume_tokens(list(text.encode()))
        return taken == len(text.encode()) and matcher.is_accepting()

    def takes_prefix(self, text: str) -> bool:
        """Whether the text is allowed so far."""
        return bool(self._matcher.deep_copy().try_consume_tokens(list(text.encode())) == len(text.encode()))

    def verdict(self, pointer: str) -> Verdict:
        """The verdict on the keyword at a pointer."""
        return next(entry.verdict for entry in self.report if entry.pointer == pointer)

    def detail(self, pointer: str) -> str:
        """The sentence beside it."""
        return next(entry.detail for entry in self.report if entry.pointer == pointer)

"""Walking the engine byte by byte: 255 tokens of one byte each (all but 0xFF, which no text has) and one EOG."""

from __future__ import annotations

import json

from llguidance import LLMatcher, LLTokenizer
from llguidance._lib import LLParserLimits, regex_to_lark

EOG = 256


class _Bytes:
    is_tokenizer_wrapper = True
    eos_token_id = EOG
    bos_token_id = None

    def __init__(self):
        self.tokens = [*(bytes([byte]) for byte in range(255)), b"", b"<eog>"]
        self.special_token_ids = [EOG]

    def __call__(self, text):
        raise NotImplementedError


_TOKENIZER = LLTokenizer(_Bytes(), n_vocab=257, eos_token=[EOG])
_LIMITS = LLParserLimits(max_items_in_row=50_000, verbose_errors=False)


def matcher_of(pattern: str) -> LLMatcher:
    """The engine's matcher of a full match of its own pattern."""
    return _compiled(f"start: /{regex_to_lark(pattern, use_ascii='')}/")


def matcher_of_schema(schema: object) -> LLMatcher:
    return _compiled("start: %json " + json.dumps(schema))


def takes(matcher: LLMatcher, text: str) -> bool:
    """Whether the text is complete and legal byte for byte."""
    walked = matcher.deep_copy()
    for byte in text.encode():
        walked.consume_token(byte)
        if walked.is_error():
            return False
    return walked.is_accepting()


def _compiled(lark: str) -> LLMatcher:
    matcher = LLMatcher(_TOKENIZER, lark + '\n%llguidance {"no_forcing": true}\n', log_level=0, limits=_LIMITS)
    assert not matcher.is_error(), (lark[:200], matcher.get_error()[:300])
    return matcher

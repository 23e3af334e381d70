"""Small tokenizers, written out: one byte-level, one SentencePiece-style."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Edit = Callable[[dict[str, Any]], object]
TokenizerJson = Callable[..., bytes]


def _added(token_id: int, content: str, *, special: bool) -> dict[str, Any]:
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def _document(**parts: Any) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        **parts,
    }


def _builder(make: Callable[[], dict[str, Any]]) -> TokenizerJson:
    def build(edit: Edit | None = None) -> bytes:
        document = make()
        if edit is not None:
            edit(document)
        return json.dumps(document).encode()

    return build


@pytest.fixture
def added() -> Callable[..., dict[str, Any]]:
    """An entry of `added_tokens`."""
    return _added


@pytest.fixture
def byte_level_json() -> TokenizerJson:
    """Byte-level: `a` 0, `b` 1, space 2, `ab` 3, bytes C3 A9 (é) 4 and 5; `<|end|>` 6 special."""

    def make() -> dict[str, Any]:
        return _document(
            added_tokens=[_added(6, "<|end|>", special=True)],
            pre_tokenizer={
                "type": "ByteLevel",
                "add_prefix_space": False,
                "trim_offsets": True,
                "use_regex": False,
            },
            decoder={
                "type": "ByteLevel",
                "add_prefix_space": False,
                "trim_offsets": True,
                "use_regex": False,
            },
            model={
                "type": "BPE",
                "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ã": 4, "©": 5},
                "merges": ["a b"],
            },
        )

    return _builder(make)


@pytest.fixture
def byte_fallback_json() -> TokenizerJson:
    """Llama 2's layout: `<unk>` 0, `<s>` 1, `</s>` 2, `<0xC3>` 3, `<0xA9>` 4, `▁` 5, `a` 6, `▁a` 7."""

    def make() -> dict[str, Any]:
        tokens = ["<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "▁", "a", "▁a"]
        return _document(
            added_tokens=[_added(i, tokens[i], special=True) for i in range(3)],
            normalizer={
                "type": "Sequence",
                "normalizers": [
                    {"type": "Prepend", "prepend": "▁"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                ],
            },
            post_processor={
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "<s>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [
                    {"Sequence": {"id": "A", "type_id": 0}},
                    {"Sequence": {"id": "B", "type_id": 1}},
                ],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
            },
            decoder={
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                ],
            },
            model={
                "type": "BPE",
                "unk_token": "<unk>",
                "fuse_unk": True,
                "byte_fallback": True,
                "vocab": {token: index for index, token in enumerate(tokens)},
                "merges": ["▁ a"],
            },
        )

    return _builder(make)

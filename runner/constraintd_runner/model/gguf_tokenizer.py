"""Rebuilds Hugging Face tokenizer files from a GGUF's metadata (byte-level BPE models)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import GgufError
from .gguf_weights import GgufModel

# GGUF's token types: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


_PRE_TOKENIZERS: Mapping[str, dict[str, Any]] = {
    "gpt-2": _byte_level(use_regex=True),
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)],
    },
    "llama-bpe": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": _LLAMA3_SPLIT}, "behavior": "Isolated", "invert": False},
            _byte_level(use_regex=False),
        ],
    },
}
"""GGUF's `tokenizer.ggml.pre` -> how text is cut before the merges, in tokenizer.json's form."""


def tokenizer_json(model: GgufModel) -> dict[str, Any]:
    """The content of `tokenizer.json`. Control tokens become special added tokens.

    Raises GgufError for a tokenizer that is not byte-level BPE, or that cuts text in an unknown way.
    """
    kind = model.need("tokenizer.ggml.model")
    if kind != "gpt2":
        raise GgufError(f"{model.path}: tokenizer.ggml.model {kind!r} is not supported, only 'gpt2' is")
    cut = model.metadata.get("tokenizer.ggml.pre", "gpt-2")
    if cut not in _PRE_TOKENIZERS:
        known = ", ".join(sorted(_PRE_TOKENIZERS))
        raise GgufError(f"{model.path}: tokenizer.ggml.pre {cut!r} is not supported; known are {known}")
    tokens: list[str] = model.need("tokenizer.ggml.tokens")
    types: list[int] = model.need("tokenizer.ggml.token_type")
    merges: list[str] = model.need("tokenizer.ggml.merges")
    added = [
        {
            "id": token_id,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind != _USER_DEFINED,
        }
        for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[cut],
        "post_processor": None,
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": cut == "llama-bpe",
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            # The pair form: a merge's halves may themselves hold spaces in other tools' files.
            "merges": [merge.split(" ", 1) for merge in merges],
        },
    }


def tokenizer_config(model: GgufModel) -> dict[str, Any]:
    """The content of `tokenizer_config.json`: special tokens, chat template, context length."""
    tokens: list[str] = model.need("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": bool(model.metadata.get("tokenizer.ggml.add_space_prefix", False)),
        "add_bos_token": bool(model.metadata.get("tokenizer.ggml.add_bos_token", False)),
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.shape.context_length,
    }
    for name, token_id in special_ids(model).items():
        config[f"{name}_token"] = tokens[token_id]
    template = model.metadata.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return config


def special_ids(model: GgufModel) -> dict[str, int]:
    """Those of bos, eos, unk and pad that the file names -> token id."""
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    keys = {name: f"tokenizer.ggml.{key}_token_id" for name, key in names.items()}
    return {name: int(model.metadata[key]) for name, key in keys.items() if key in model.metadata}


def end_of_generation_ids(model: GgufModel) -> list[int]:
    """Ids after which a model stops: eos, and the end of a turn where the file names another."""
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
    ids = [int(model.metadata[key]) for key in keys if key in model.metadata]
    if not ids:
        model.need(keys[0])
    return list(dict.fromkeys(ids))

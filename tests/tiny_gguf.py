"""Writes small random llama GGUF files with the tokenizer of the tiny decoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import gguf.quants
import numpy as np

from tests.tiny_decoder import CHAT_TEMPLATE, SPECIAL_TOKENS, tiny_shape, tiny_weights, tokenizer_document

Q8_0, Q4_1, F16, F32 = (getattr(gguf.GGMLQuantizationType, name) for name in ("Q8_0", "Q4_1", "F16", "F32"))

MIXED_TYPES = {
    "token_embd": Q8_0,
    "attn_q": Q4_1,
    "attn_k": Q8_0,
    "attn_v": F16,
    "attn_output": F32,
    "ffn_gate": Q4_1,
    "ffn_up": Q4_1,
    "ffn_down": Q4_1,
    "output": Q8_0,
}
"""Every type that the reader takes, by the last part of a tensor's name; others are F32."""


def write_tiny_gguf(
    path: Path,
    *,
    seed: int = 0,
    tied: bool = False,
    architecture: str = "llama",
    types: Mapping[str, Any] = MIXED_TYPES,
    metadata: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """A whole file. `metadata` overrides keys, `without` names keys and tensors to leave out, `extra`
    adds tensors.
    """
    shape = tiny_shape(context_length=256)
    weights = {**tiny_weights(shape, seed), **(extra or {})}
    if tied:
        weights["token_embd.weight"] = weights.pop("output.weight")
    tokenizer = tokenizer_document()["model"]
    keys: dict[str, Any] = {
        "llama.block_count": shape.layers,
        "llama.context_length": shape.context_length,
        "llama.embedding_length": shape.hidden,
        "llama.feed_forward_length": shape.ffn,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": shape.norm_epsilon,
        "llama.rope.freq_base": shape.rope_base,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": list(tokenizer["vocab"]),
        "tokenizer.ggml.token_type": [3 if token in SPECIAL_TOKENS else 1 for token in tokenizer["vocab"]],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in tokenizer["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.chat_template": CHAT_TEMPLATE,
        **(metadata or {}),
    }
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        if key in without:
            continue
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    for name, values in weights.items():
        if name in without:
            continue
        kind = types.get(name.split(".")[-2], F32)
        writer.add_tensor(name, gguf.quants.quantize(np.asarray(values), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

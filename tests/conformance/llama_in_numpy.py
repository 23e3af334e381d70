"""The llama architecture in NumPy, straight from a GGUF file and independent of the project's converter.

Follows llama.cpp's conventions where the file does: rows of query and key are in interleaved order, so
a rotary pair is two neighbours. No cache, no batch: one forward pass over one sequence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import gguf.quants
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class LlamaInNumpy:
    """All weights in float32, and the sizes from the metadata."""

    def __init__(self, path: str | Path) -> None:
        reader = gguf.GGUFReader(path)
        self.weights: dict[str, Array] = {
            tensor.name.removesuffix(".weight"): gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(
                np.float32
            )
            for tensor in reader.tensors
        }

        def value(key: str) -> Any:
            return reader.fields[f"llama.{key}"].contents()

        self.layers: int = value("block_count")
        self.heads: int = value("attention.head_count")
        self.kv_heads: int = value("attention.head_count_kv")
        self.epsilon: float = value("attention.layer_norm_rms_epsilon")
        self.rope_base: float = value("rope.freq_base")

    def logits(self, tokens: list[int]) -> Array:
        """Logits [len(tokens), vocab] after each token."""
        w = self.weights
        x = w["token_embd"][tokens]  # [s, hidden]
        for layer in range(self.layers):
            at = f"blk.{layer}."
            normed = self._norm(x, w[at + "attn_norm"])  # [s, hidden]
            query = self._rotate(self._split(normed @ w[at + "attn_q"].T, self.heads))  # [heads, s, d]
            key = self._rotate(self._split(normed @ w[at + "attn_k"].T, self.kv_heads))  # [kv_heads, s, d]
            value = self._split(normed @ w[at + "attn_v"].T, self.kv_heads)  # [kv_heads, s, d]
            mixed = self._attend(query, key, value)  # [s, heads*d]
            x = x + mixed @ w[at + "attn_output"].T
            normed = self._norm(x, w[at + "ffn_norm"])
            gate = normed @ w[at + "ffn_gate"].T  # [s, ffn]
            up = normed @ w[at + "ffn_up"].T  # [s, ffn]
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[at + "ffn_down"].T
        out: Array = self._norm(x, w["output_norm"]) @ w.get("output", w["token_embd"]).T  # [s, vocab]
        return out

    def _norm(self, x: Array, gain: Array) -> Array:
        mean = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
        return (x / np.sqrt(mean + self.epsilon)).astype(np.float32) * gain

    @staticmethod
    def _split(x: Array, heads: int) -> Array:
        """[s, heads*d] -> [heads, s, d]"""
        return x.reshape(len(x), heads, -1).transpose(1, 0, 2)

    def _rotate(self, x: Array) -> Array:
        """Turns each neighbouring pair of x [heads, s, d] as a complex number by its position's angle."""
        _, length, dim = x.shape
        frequency = self.rope_base ** (-np.arange(0, dim, 2) / dim)  # [d/2]
        turn = np.exp(1j * np.outer(np.arange(length), frequency))  # [s, d/2]
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turn  # [heads, s, d/2]
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape).astype(np.float32)

    def _attend(self, query: Array, key: Array, value: Array) -> Array:
        heads, length, dim = query.shape
        group = heads // self.kv_heads
        future = np.triu(np.ones((length, length), bool), 1)  # [s, s]
        out = np.empty_like(query)  # [heads, s, d]
        for head in range(heads):
            scores = query[head] @ key[head // group].T / np.sqrt(dim)  # [s, s]
            scores[future] = -np.inf
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[head] = weights / weights.sum(axis=-1, keepdims=True) @ value[head // group]
        return out.transpose(1, 0, 2).reshape(length, heads * dim)

"""The llama architecture as values: its sizes, and the names and orientation of its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WeightSource = Callable[[str], NDArray[np.float32]]
"""Name of a weight -> its values, float32. Matrices are [outputs, inputs], as in `y = W x`.

Names are those of GGUF: `token_embd.weight` [vocab, hidden], `output.weight` [vocab, hidden] (only when
not tied), `output_norm.weight` [hidden], and for each layer N `blk.N.` + `attn_norm.weight` [hidden],
`attn_q.weight` [heads*head_dim, hidden], `attn_k.weight`, `attn_v.weight` [kv_heads*head_dim, hidden],
`attn_output.weight` [hidden, heads*head_dim], `ffn_norm.weight` [hidden], `ffn_gate.weight`,
`ffn_up.weight` [ffn, hidden], `ffn_down.weight` [hidden, ffn].

Rows of `attn_q` and `attn_k` are in half-rotation order: within a head, row i turns with row i + head_dim/2
(the order of Hugging Face checkpoints, not the interleaved one that GGUF files store).
"""


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes and constants of one llama-architecture decoder."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    context_length: int
    vocab: int
    """Rows of the embedding, which is also the width of the logits."""
    rope_base: float
    norm_epsilon: float
    tied: bool
    """Whether the output matrix is the embedding."""

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        """Number of weights, the small norm vectors left out; for progress displays."""
        attention = self.hidden * (2 * self.q_width + 2 * self.kv_width)
        heads = self.vocab * self.hidden * (1 if self.tied else 2)
        return heads + self.layers * (attention + 3 * self.hidden * self.ffn)


def rope_tables(
    shape: LlamaShape, factors: NDArray[np.float32] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosine and sine of every rotary angle, both float32 [context_length, head_dim/2].

    `factors` [head_dim/2] divides the frequencies (the `rope_freqs.weight` tensor of Llama 3 files).
    Angles are computed in float64: at position 8,000 float32 angles are off by up to 5e-4 radians.
    """
    half = shape.head_dim // 2
    frequency = shape.rope_base ** (-np.arange(half, dtype=np.float64) / half)  # [head_dim/2]
    if factors is not None:
        frequency = frequency / factors.astype(np.float64)
    angle = np.arange(shape.context_length, dtype=np.float64)[:, None] * frequency  # [context, head_dim/2]
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

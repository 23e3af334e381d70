"""Reads a llama-architecture GGUF file into plain values; everything else is refused by name.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import gguf.quants
import numpy as np
from numpy.typing import NDArray

from .errors import GgufError
from .llama import LlamaShape

SUPPORTED_TENSOR_TYPES = ("F32", "F16", "Q4_1", "Q8_0")

_LAYER_TENSORS = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)


@dataclass(frozen=True, slots=True)
class GgufModel:
    """One opened GGUF file: sizes, metadata, and weights that are dequantised when asked for."""

    path: Path
    shape: LlamaShape
    metadata: Mapping[str, Any]
    """All metadata that is not an array, plus the tokenizer's arrays, as Python values."""
    tensors: Mapping[str, gguf.ReaderTensor]

    @classmethod
    def open(cls, path: str | Path) -> GgufModel:
        """Maps the file and checks that every tensor and key needed is there and understood.

        Raises GgufError naming the architecture, metadata key, tensor or tensor type at fault.
        """
        path = Path(path)
        reader = _read(path)
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        metadata = {name: field.contents() for name, field in reader.fields.items() if _is_wanted(name, field)}
        architecture = _need(metadata, "general.architecture", path)
        if architecture != "llama":
            raise GgufError(f"{path}: architecture {architecture!r} is not supported, only 'llama' is")
        shape = _shape(metadata, tensors, path)
        _check_tensors(tensors, shape, path)
        return cls(path, shape, metadata, tensors)

    def weight(self, name: str) -> NDArray[np.float32]:
        """The tensor as float32, oriented and ordered as `llama.WeightSource` says."""
        tensor = self.tensors[name]
        values: NDArray[np.float32] = np.ascontiguousarray(
            gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32
        )
        if name.endswith("attn_q.weight"):
            return _half_rotation_order(values, self.shape.heads)
        if name.endswith("attn_k.weight"):
            return _half_rotation_order(values, self.shape.kv_heads)
        return values

    def rope_factors(self) -> NDArray[np.float32] | None:
        """Divisors of the rotary frequencies, float32 [head_dim/2], where the file has them."""
        return self.weight("rope_freqs.weight") if "rope_freqs.weight" in self.tensors else None

    def need(self, key: str) -> Any:
        """A metadata value; GgufError naming the key if the file lacks it."""
        return _need(self.metadata, key, self.path)


def _read(path: Path) -> gguf.GGUFReader:
    try:
        return gguf.GGUFReader(path)
    except OSError as error:
        raise GgufError(f"{path}: cannot be read: {error}") from error
    except (ValueError, IndexError, KeyError) as error:  # what the reader raises on a cut-off or foreign file
        raise GgufError(f"{path}: is not a whole GGUF file: {error}") from error


def _is_wanted(name: str, field: gguf.ReaderField) -> bool:
    return name.startswith("tokenizer.ggml.") or field.types[0] != gguf.GGUFValueType.ARRAY


def _need(metadata: Mapping[str, Any], key: str, path: Path) -> Any:
    if key not in metadata:
        raise GgufError(f"{path}: the metadata key {key!r} is missing")
    return metadata[key]


def _shape(metadata: Mapping[str, Any], tensors: Mapping[str, gguf.ReaderTensor], path: Path) -> LlamaShape:
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise GgufError(f"{path}: llama.rope.scaling.type {scaling!r} is not supported, only 'none' is")
    if metadata.get("llama.expert_count", 0):
        raise GgufError(f"{path}: mixtures of experts (llama.expert_count) are not supported")
    if "token_embd.weight" not in tensors:
        raise GgufError(f"{path}: the tensor 'token_embd.weight' is missing")
    hidden = int(_need(metadata, "llama.embedding_length", path))
    heads = int(_need(metadata, "llama.attention.head_count", path))
    head_dim = int(metadata.get("llama.attention.key_length", hidden // heads))
    rotated = int(metadata.get("llama.rope.dimension_count", head_dim))
    if rotated != head_dim:
        raise GgufError(
            f"{path}: llama.rope.dimension_count is {rotated}, but only whole heads ({head_dim}) can be rotated"
        )
    return LlamaShape(
        layers=int(_need(metadata, "llama.block_count", path)),
        hidden=hidden,
        heads=heads,
        kv_heads=int(metadata.get("llama.attention.head_count_kv", heads)),
        head_dim=head_dim,
        ffn=int(_need(metadata, "llama.feed_forward_length", path)),
        context_length=int(_need(metadata, "llama.context_length", path)),
        vocab=int(tensors["token_embd.weight"].shape[1]),  # GGUF shapes are innermost first
        rope_base=float(metadata.get("llama.rope.freq_base", 10_000.0)),
        norm_epsilon=float(_need(metadata, "llama.attention.layer_norm_rms_epsilon", path)),
        tied="output.weight" not in tensors,
    )


def _check_tensors(tensors: Mapping[str, gguf.ReaderTensor], shape: LlamaShape, path: Path) -> None:
    expected = {"token_embd.weight", "output_norm.weight"}
    expected |= {f"blk.{layer}.{name}.weight" for layer in range(shape.layers) for name in _LAYER_TENSORS}
    optional = {"output.weight", "rope_freqs.weight"}
    for name in sorted(expected - tensors.keys()):
        raise GgufError(f"{path}: the tensor {name!r} is missing")
    for name in sorted(tensors.keys() - expected - optional):
        raise GgufError(f"{path}: the tensor {name!r} is no part of the llama architecture as known here")
    for name, tensor in tensors.items():
        if tensor.tensor_type.name not in SUPPORTED_TENSOR_TYPES:
            raise GgufError(
                f"{path}: the tensor {name!r} has type {tensor.tensor_type.name}; "
                f"supported are {', '.join(SUPPORTED_TENSOR_TYPES)}"
            )


def _half_rotation_order(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undoes the row order of GGUF, in which the two rows of a rotary pair are neighbours.

    The writer of llama GGUFs reads a head's rows as [2, head_dim/2] and stores them transposed.
    """
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)  # [heads, head_dim/2, 2, hidden]
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)

"""What is read from a GGUF file, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from constraintd_runner.model.errors import GgufError
from constraintd_runner.model.gguf_weights import GgufModel

from tests.tiny_gguf import MIXED_TYPES, write_tiny_gguf


def test_sizes_come_from_the_metadata(tmp_path: Path) -> None:
    shape = GgufModel.open(write_tiny_gguf(tmp_path / "m.gguf")).shape
    assert (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim) == (2, 64, 4, 2, 16)
    assert (shape.ffn, shape.context_length, shape.vocab, shape.tied) == (96, 256, 284, False)
    assert shape.rope_base == 10_000.0


def test_a_file_without_an_output_matrix_is_tied(tmp_path: Path) -> None:
    assert GgufModel.open(write_tiny_gguf(tmp_path / "m.gguf", tied=True)).shape.tied


def test_rows_of_query_and_key_come_in_half_rotation_order(tmp_path: Path) -> None:
    rows = np.repeat(np.arange(32, dtype=np.float32)[:, None], 64, axis=1)  # row i holds i
    path = write_tiny_gguf(
        tmp_path / "m.gguf", types={}, extra={"blk.0.attn_k.weight": rows, "blk.0.attn_v.weight": rows}
    )
    model = GgufModel.open(path)
    key = model.weight("blk.0.attn_k.weight")[:, 0].astype(int).tolist()
    assert key == [
        *(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15),
        *(16, 18, 20, 22, 24, 26, 28, 30, 17, 19, 21, 23, 25, 27, 29, 31),
    ]
    assert model.weight("blk.0.attn_v.weight")[:, 0].astype(int).tolist() == list(range(32))


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "BF16"])
def test_other_tensor_types_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    types: dict[str, Any] = {**MIXED_TYPES, "ffn_up": getattr(gguf.GGMLQuantizationType, kind)}
    path = write_tiny_gguf(tmp_path / "m.gguf", types=types)
    with pytest.raises(
        GgufError, match=rf"'blk\.0\.ffn_up\.weight' has type {kind}; supported are F32, F16, Q4_1, Q8_0"
    ):
        GgufModel.open(path)


def test_other_architectures_are_refused_by_name(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", architecture="qwen2")
    with pytest.raises(GgufError, match="architecture 'qwen2' is not supported"):
        GgufModel.open(path)


@pytest.mark.parametrize(
    "key",
    [
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    ],
)
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", without=(key,))
    with pytest.raises(GgufError, match=f"the metadata key '{key}' is missing"):
        GgufModel.open(path)


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.ffn_gate.weight", "output_norm.weight"])
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", without=(name,))
    with pytest.raises(GgufError, match=f"the tensor '{name}' is missing"):
        GgufModel.open(path)


def test_a_tensor_of_another_kind_of_layer_is_named(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", extra={"blk.0.attn_q.bias": np.zeros(64, np.float32)})
    with pytest.raises(GgufError, match=r"'blk\.0\.attn_q\.bias' is no part of the llama architecture"):
        GgufModel.open(path)


def test_scaled_rotary_angles_are_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", metadata={"llama.rope.scaling.type": "yarn"})
    with pytest.raises(GgufError, match=r"rope\.scaling\.type 'yarn' is not supported"):
        GgufModel.open(path)


def test_a_cut_off_file_and_a_foreign_one_are_refused(tmp_path: Path) -> None:
    whole = write_tiny_gguf(tmp_path / "m.gguf").read_bytes()
    for size in (0, 3, 100, len(whole) // 2, len(whole) - 100):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(GgufError, match=r"cut\.gguf: is not a whole GGUF file"):
            GgufModel.open(tmp_path / "cut.gguf")
    (tmp_path / "cut.gguf").write_bytes(b"PK\x03\x04" + bytes(1000))
    with pytest.raises(GgufError, match="is not a whole GGUF file"):
        GgufModel.open(tmp_path / "cut.gguf")


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=r"absent\.gguf: cannot be read"):
        GgufModel.open(tmp_path / "absent.gguf")

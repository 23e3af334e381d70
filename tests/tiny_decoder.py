"""Builds small random decoders with real tokenizers, in both styles of model folder, for tests.

Both styles hold the same llama weights for the same seed, so they give the same logits: 2 layers of 64
values, a few hundred KB. The genai style comes from the project's own graph builder; the Optimum style is
written here from plain ONNX operators.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from constraintd_runner.model.convert import genai_config
from constraintd_runner.model.external_data import ExternalData
from constraintd_runner.model.graph import build_llama
from constraintd_runner.model.llama import LlamaShape, rope_tables
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

BOS, EOS, TOOL = 0, 1, 2
SPECIAL_TOKENS = ("<s>", "</s>", "<|tool|>")
FIRST_BYTE = 3
"""Byte b is the token FIRST_BYTE + (b's place in the byte-level alphabet's order of code points)."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}\n{{ message['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)

_MERGES = (
    "t h", "th e", "i n", "e r", "a n", "an d", "o n", "Ġ a", "Ġ the", "r e", "s t", "o r", "l l",
    '{ "', '" :', '" ,', '" }', "] }", "t r", "tr u", "tru e", "n u", "nu ll", "1 9", "2 0",
)  # fmt: skip


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes 0..255 in byte-level BPE (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def tokenizer_document() -> dict[str, Any]:
    """A complete `tokenizer.json`: three special tokens, every byte, and a few merges."""
    tokens = [*SPECIAL_TOKENS, *sorted(byte_alphabet()), *(merge.replace(" ", "") for merge in _MERGES)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [
        {
            "id": token_id,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token_id, token in enumerate(SPECIAL_TOKENS)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in _MERGES],
        },
    }


TOKENIZER_SIZE = len(SPECIAL_TOKENS) + 256 + len(_MERGES)


def tiny_shape(logits_width: int | None = None, *, context_length: int = 2048) -> LlamaShape:
    """Sizes of the tiny decoder; the width of the logits may be more or less than the tokenizer's."""
    return LlamaShape(
        layers=2,
        hidden=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        ffn=96,
        context_length=context_length,
        vocab=TOKENIZER_SIZE if logits_width is None else logits_width,
        rope_base=10_000.0,
        norm_epsilon=1e-5,
        tied=False,
    )


def tiny_weights(shape: LlamaShape, seed: int) -> dict[str, NDArray[np.float32]]:
    """Random weights by GGUF name, scaled so that the logits spread like a real model's (about +-8)."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> NDArray[np.float32]:
        return (random.standard_normal((rows, columns)) * scale / np.sqrt(columns)).astype(np.float32)

    # The embedding always has room for every token of the tokenizer; a narrow output is a cut.
    wide = max(shape.vocab, TOKENIZER_SIZE)
    weights = {"token_embd.weight": matrix(wide, shape.hidden, np.sqrt(shape.hidden))}
    for layer in range(shape.layers):
        for name, rows, columns in (
            ("attn_q", shape.q_width, shape.hidden),
            ("attn_k", shape.kv_width, shape.hidden),
            ("attn_v", shape.kv_width, shape.hidden),
            ("attn_output", shape.hidden, shape.q_width),
            ("ffn_gate", shape.ffn, shape.hidden),
            ("ffn_up", shape.ffn, shape.hidden),
            ("ffn_down", shape.hidden, shape.ffn),
        ):
            weights[f"blk.{layer}.{name}.weight"] = matrix(rows, columns, 2.0)
        for name in ("attn_norm", "ffn_norm"):
            gain = 1 + 0.1 * random.standard_normal(shape.hidden)
            weights[f"blk.{layer}.{name}.weight"] = gain.astype(np.float32)
    weights["output_norm.weight"] = np.ones(shape.hidden, np.float32)
    weights["output.weight"] = matrix(shape.vocab, shape.hidden, 2.5)
    return weights


def write_genai_folder(
    path: str | Path, *, seed: int = 0, logits_width: int | None = None, all_logits: bool = False
) -> Path:
    """An onnxruntime-genai folder: GroupQueryAttention, past and present in one buffer."""
    folder = _new_folder(path)
    shape = tiny_shape(logits_width)
    weights = tiny_weights(shape, seed)
    with ExternalData(folder / "model.onnx.data") as data:
        model = build_llama(shape, weights.__getitem__, data, bits=32, all_logits=all_logits)
    onnx.save_model(model, folder / "model.onnx")
    _write_json(folder / "genai_config.json", genai_config(shape, bos=BOS, eos=[EOS], pad=EOS))
    _write_tokenizer(folder, shape)
    return folder


def write_optimum_folder(
    path: str | Path,
    *,
    position_ids: bool,
    seed: int = 0,
    logits_width: int | None = None,
    graph: str = "onnx/model.onnx",
    float16: bool = False,
    cache_branch: bool = False,
) -> Path:
    """An Optimum-style export: `past_key_values.N.*` in, longer `present.N.*` out.

    `float16`: all values, cache and logits are float16. `cache_branch`: a merged export, whose input
    `use_cache_branch` says whether the past given is to be used; if not, it is left out.
    """
    folder = _new_folder(path)
    shape = tiny_shape(logits_width)
    model = _optimum_graph(shape, tiny_weights(shape, seed), position_ids, float16, cache_branch)
    (folder / graph).parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(model, folder / graph)
    _write_tokenizer(folder, shape)
    return folder


def _new_folder(path: str | Path) -> Path:
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def _write_tokenizer(folder: Path, shape: LlamaShape) -> None:
    _write_json(folder / "tokenizer.json", tokenizer_document())
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": CHAT_TEMPLATE,
            "model_max_length": shape.context_length,
        },
    )
    _write_json(folder / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS})
    config = {
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.context_length,
        "vocab_size": max(shape.vocab, TOKENIZER_SIZE),  # rows of the embedding
    }
    _write_json(folder / "config.json", config)


def _optimum_graph(
    shape: LlamaShape, weights: dict[str, NDArray[np.float32]], position_ids: bool, float16: bool, cache_branch: bool
) -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    stored: list[onnx.TensorProto] = []

    number = np.float16 if float16 else np.float32

    def keep(values: Any, dtype: Any = number) -> str:
        name = f"const.{len(stored)}"
        stored.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def op(kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        out = out or f"value.{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def ints(*values: int) -> str:
        return keep(values, np.int64)

    def norm(x: str, name: str) -> str:
        mean = op("ReduceMean", op("Mul", x, x), ints(-1), keepdims=1)
        root = op("Sqrt", op("Add", mean, keep(shape.norm_epsilon)))
        return op("Mul", op("Div", x, root), keep(weights[name]))

    def product(x: str, name: str) -> str:
        return op("MatMul", x, keep(weights[name].T))

    half = shape.head_dim // 2

    def heads_of(x: str, heads: int) -> str:  # [b, s, heads*dim] -> [b, heads, s, dim]
        return op("Transpose", op("Reshape", x, ints(0, 0, heads, shape.head_dim)), perm=[0, 2, 1, 3])

    def rotate(x: str) -> str:
        low = op("Slice", x, ints(0), ints(half), ints(3))
        high = op("Slice", x, ints(half), ints(shape.head_dim), ints(3))
        first = op("Sub", op("Mul", low, cos), op("Mul", high, sin))
        second = op("Add", op("Mul", high, cos), op("Mul", low, sin))
        return op("Concat", first, second, axis=3)

    def repeat(x: str) -> str:  # [b, kv, t, d] -> [b, heads, t, d], each key-value head for its group
        group = shape.heads // shape.kv_heads
        wide = op("Tile", op("Unsqueeze", x, ints(2)), ints(1, 1, group, 1, 1))
        return op("Reshape", wide, ints(0, shape.heads, -1, shape.head_dim))

    sequence = op("Gather", op("Shape", "input_ids"), keep(1, np.int64))
    past = op("Gather", op("Shape", "past_key_values.0.key"), keep(2, np.int64))
    if cache_branch:  # without it the past counts as empty, whatever was given
        flag = op("Squeeze", op("Cast", "use_cache_branch", to=TensorProto.INT64))
        past = op("Mul", past, flag)
    used = op("Unsqueeze", past, ints(0))

    def grow(kind: str, layer: int, new: str) -> str:
        """[b, kv, past, d] and [b, kv, s, d] -> present [b, kv, t, d]"""
        old = op("Slice", f"past_key_values.{layer}.{kind}", ints(0), used, ints(2))
        return op("Concat", old, new, out=f"present.{layer}.{kind}", axis=2)

    total = op("Add", past, sequence)
    absolute = op("Range", past, total, keep(1, np.int64))  # [s]
    positions = "position_ids" if position_ids else op("Unsqueeze", absolute, ints(0))
    cos_table, sin_table = rope_tables(shape)
    cos = op("Unsqueeze", op("Gather", keep(cos_table), positions), ints(1))  # [b, 1, s, d/2]
    sin = op("Unsqueeze", op("Gather", keep(sin_table), positions), ints(1))
    columns = op("Range", keep(0, np.int64), total, keep(1, np.int64))  # [t]
    causal = op("LessOrEqual", columns, op("Unsqueeze", absolute, ints(1)))  # [s, t]
    padding = op("Cast", op("Unsqueeze", "attention_mask", ints(1, 2)), to=TensorProto.BOOL)  # [b, 1, 1, t]
    bias = op("Where", op("And", causal, padding), keep(0.0), keep(-3e4))  # [b, 1, s, t]

    hidden = op("Gather", keep(weights["token_embd.weight"]), "input_ids")
    for layer in range(shape.layers):
        name = f"blk.{layer}"
        normed = norm(hidden, f"{name}.attn_norm.weight")
        query = rotate(heads_of(product(normed, f"{name}.attn_q.weight"), shape.heads))
        key = rotate(heads_of(product(normed, f"{name}.attn_k.weight"), shape.kv_heads))
        value = heads_of(product(normed, f"{name}.attn_v.weight"), shape.kv_heads)
        key, value = grow("key", layer, key), grow("value", layer, value)
        scores = op("MatMul", query, op("Transpose", repeat(key), perm=[0, 1, 3, 2]))
        scaled = op("Add", op("Mul", scores, keep(shape.head_dim**-0.5)), bias)
        mixed = op("MatMul", op("Softmax", scaled, axis=-1), repeat(value))
        joined = op("Reshape", op("Transpose", mixed, perm=[0, 2, 1, 3]), ints(0, 0, shape.q_width))
        hidden = op("Add", hidden, product(joined, f"{name}.attn_output.weight"))
        normed = norm(hidden, f"{name}.ffn_norm.weight")
        gate = product(normed, f"{name}.ffn_gate.weight")
        gated = op("Mul", op("Mul", gate, op("Sigmoid", gate)), product(normed, f"{name}.ffn_up.weight"))
        hidden = op("Add", hidden, product(gated, f"{name}.ffn_down.weight"))
    op("MatMul", norm(hidden, "output_norm.weight"), keep(weights["output.weight"].T), out="logits")

    kind, info = TensorProto.FLOAT16 if float16 else TensorProto.FLOAT, helper.make_tensor_value_info
    names = ["input_ids", "attention_mask", *(["position_ids"] if position_ids else [])]
    inputs = [info(name, TensorProto.INT64, ["batch", "total" if "mask" in name else "seq"]) for name in names]
    if cache_branch:
        inputs.append(info("use_cache_branch", TensorProto.BOOL, [1]))
    outputs = [info("logits", kind, ["batch", "seq", shape.vocab])]
    for layer in range(shape.layers):
        for part in ("key", "value"):
            sizes = ["batch", shape.kv_heads, "past", shape.head_dim]
            inputs.append(info(f"past_key_values.{layer}.{part}", kind, sizes))
            sizes = ["batch", shape.kv_heads, "present", shape.head_dim]
            outputs.append(info(f"present.{layer}.{part}", kind, sizes))
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

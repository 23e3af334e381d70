"""Builds the ONNX graph of a llama decoder, in the form that onnxruntime-genai loads too.

Inputs: `input_ids` int64 [batch, sequence], `attention_mask` int64 [batch, total], for each layer N
`past_key_values.N.key|value` float32 [batch, kv_heads, past, head_dim]. Outputs: `logits` float32 and
`present.N.key|value`, to be bound to the same memory as the past.

Query, key and value come from one matrix product, gate and up from another: fewer and larger products keep
two threads busier. Measured on SmolLM2-135M, 8 bits, 2 threads: 8.9 ms a token with gate and up in one
product, 9.4 with two. Leaving the zero points out brings nothing (9.0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from .external_data import ExternalData
from .llama import LlamaShape, WeightSource, rope_tables
from .quantize import BLOCK, BlockWeights, quantize_asymmetric, quantize_symmetric

_MICROSOFT = "com.microsoft"
_INT8_ACTIVATIONS = 4  # MatMulNBits accuracy_level; the others fall off the fast kernels (7 to 30 times slower)


def build_llama(
    shape: LlamaShape,
    weight: WeightSource,
    data: ExternalData,
    *,
    bits: int,
    all_logits: bool = False,
    rope_factors: NDArray[np.float32] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> onnx.ModelProto:
    """The whole model, its weights written to `data` on the way.

    `bits` is 8 or 4 (block-quantised matrices; embedding and output matrix always have 8) or 32 (plain
    float matrices). Logits are float32 [batch, 1, vocab] of the last position, with `all_logits`
    [batch, sequence, vocab]: a prompt costs 197 KB of logits a token otherwise. `progress` is called
    with the number of weights written since the last call.
    """
    return _LlamaGraph(shape, weight, data, bits, all_logits, progress).build(rope_factors)


class _LlamaGraph:
    """The nodes, initializers and value names of one graph under construction."""

    def __init__(
        self,
        shape: LlamaShape,
        weight: WeightSource,
        data: ExternalData,
        bits: int,
        all_logits: bool,
        progress: Callable[[int], None],
    ) -> None:
        self.shape = shape
        self.weight = weight
        self.data = data
        self.bits = bits
        self.all_logits = all_logits
        self.progress = progress
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def build(self, rope_factors: NDArray[np.float32] | None) -> onnx.ModelProto:
        cos, sin = rope_tables(self.shape, rope_factors)
        self._store("rope.cos", cos)  # [context_length, head_dim/2]
        self._store("rope.sin", sin)
        self._sequence_lengths()

        residual = self._embed()  # [batch, sequence, hidden]
        branch = ""
        for layer in range(self.shape.layers):
            residual, normed = self._add_and_norm(f"blk.{layer}.attn_norm", residual, branch)
            branch = self._attention(layer, normed)
            residual, normed = self._add_and_norm(f"blk.{layer}.ffn_norm", residual, branch)
            branch = self._feed_forward(layer, normed)
        _, normed = self._add_and_norm("output_norm", residual, branch)
        self._logits(normed)
        return self._model()

    def _sequence_lengths(self) -> None:
        """What GroupQueryAttention wants to know, from the attention mask [batch, total]."""
        self._constant("one", np.array(1, np.int64))
        self._constant("axis_1", np.array([1], np.int64))
        self._node("ReduceSum", ["attention_mask", "axis_1"], "mask.sum", keepdims=0)  # [batch]
        self._node("Sub", ["mask.sum", "one"], "mask.last")
        self._node("Cast", ["mask.last"], "seqlens_k", to=TensorProto.INT32)  # [batch]: new length - 1
        self._node("Shape", ["attention_mask"], "mask.shape")
        self._node("Gather", ["mask.shape", "one"], "mask.total", axis=0)
        self._node("Cast", ["mask.total"], "total_length", to=TensorProto.INT32)  # scalar

    def _embed(self) -> str:
        embedding = self.weight("token_embd.weight")  # [vocab, hidden]
        if self.bits == 32:
            self._store("token_embd.weight", embedding)
            return self._node("Gather", ["token_embd.weight", "input_ids"], "embedded", axis=0)
        blocks = quantize_symmetric(embedding)
        self._store("token_embd.packed", blocks.packed.reshape(embedding.shape))  # [vocab, hidden]
        self._store("token_embd.scales", blocks.scales)  # [vocab, hidden/32]
        return self._node(
            "GatherBlockQuantized",
            ["token_embd.packed", "input_ids", "token_embd.scales"],
            "embedded",
            domain=_MICROSOFT,
            bits=8,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )

    def _add_and_norm(self, name: str, residual: str, branch: str) -> tuple[str, str]:
        """(residual + branch, its RMS norm), both [batch, sequence, hidden]; an empty branch adds nothing."""
        gain = self._store(f"{name}.weight", self.weight(f"{name}.weight"))
        normed = f"{name}.out"
        epsilon = self.shape.norm_epsilon
        if not branch:
            self._node("SimplifiedLayerNormalization", [residual, gain], normed, axis=-1, epsilon=epsilon, stash_type=1)
            return residual, normed
        total = f"{name}.residual"
        inputs, outputs = [residual, branch, gain], [normed, "", "", total]
        self._node("SkipSimplifiedLayerNormalization", inputs, outputs, domain=_MICROSOFT, epsilon=epsilon)
        return total, normed

    def _attention(self, layer: int, normed: str) -> str:
        name = f"blk.{layer}"
        shape = self.shape
        qkv = np.concatenate([self.weight(f"{name}.attn_{part}.weight") for part in "qkv"])
        packed = self._product(f"{name}.attn_qkv", normed, qkv)  # [batch, sequence, q_width + 2*kv_width]
        past = [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
        present = [f"present.{layer}.key", f"present.{layer}.value"]
        self._node(
            "GroupQueryAttention",
            [packed, "", "", *past, "seqlens_k", "total_length", "rope.cos", "rope.sin"],
            [f"{name}.attended", *present],  # [batch, sequence, q_width]
            domain=_MICROSOFT,
            num_heads=shape.heads,
            kv_num_heads=shape.kv_heads,
            scale=float(shape.head_dim) ** -0.5,
            do_rotary=1,
            rotary_interleaved=0,
        )
        return self._product(f"{name}.attn_output", f"{name}.attended", self.weight(f"{name}.attn_output.weight"))

    def _feed_forward(self, layer: int, normed: str) -> str:
        name = f"blk.{layer}"
        gate_up = np.concatenate([self.weight(f"{name}.ffn_{part}.weight") for part in ("gate", "up")])
        both = self._product(f"{name}.ffn_gate_up", normed, gate_up)  # [batch, sequence, 2*ffn]
        gate, up = f"{name}.gate", f"{name}.up"
        self._node("Split", [both], [gate, up], axis=-1, num_outputs=2)  # [batch, sequence, ffn] each
        # QuickGelu with alpha 1 is x * sigmoid(x): SiLU in one node.
        self._node("QuickGelu", [gate], f"{gate}.silu", domain=_MICROSOFT, alpha=1.0)
        self._node("Mul", [f"{gate}.silu", up], f"{name}.gated")
        return self._product(f"{name}.ffn_down", f"{name}.gated", self.weight(f"{name}.ffn_down.weight"))

    def _logits(self, normed: str) -> None:
        if not self.all_logits:
            self._constant("last", np.array([-1], np.int64))
            normed = self._node("Gather", [normed, "last"], "last_hidden", axis=1)  # [batch, 1, hidden]
        tied = self.shape.tied
        if self.bits == 32 and tied:
            # A transposed product shares the embedding's memory.
            inputs = [normed, "token_embd.weight"]
            self._node("FusedMatMul", inputs, "logits", domain=_MICROSOFT, transB=1)
            return
        head = self.weight("token_embd.weight" if tied else "output.weight")
        self._product("output", normed, head, into="logits", quantize=quantize_symmetric)

    def _product(
        self,
        name: str,
        inputs: str,
        matrix: NDArray[np.float32],
        *,
        into: str = "",
        quantize: Callable[[NDArray[np.float32]], BlockWeights] | None = None,
    ) -> str:
        """`inputs` [..., columns] times the transpose of `matrix` [rows, columns] -> [..., rows]."""
        into = into or f"{name}.out"
        self.progress(matrix.size)
        if self.bits == 32:
            self._store(f"{name}.weight", np.ascontiguousarray(matrix.T))
            return self._node("MatMul", [inputs, f"{name}.weight"], into)
        blocks = quantize(matrix) if quantize else quantize_asymmetric(matrix, self.bits)
        operands = [self._store(f"{name}.packed", blocks.packed), self._store(f"{name}.scales", blocks.scales)]
        if blocks.zero_points is not None:
            operands.append(self._store(f"{name}.zeros", blocks.zero_points))
        return self._node(
            "MatMulNBits",
            [inputs, *operands],
            into,
            domain=_MICROSOFT,
            K=blocks.columns,
            N=blocks.rows,
            bits=blocks.bits,
            block_size=BLOCK,
            accuracy_level=_INT8_ACTIVATIONS,
        )

    def _node(
        self, kind: str, inputs: list[str], outputs: str | list[str], *, domain: str = "", **attributes: Any
    ) -> str:
        """Adds a node named after its first output, and returns that output's name."""
        names = [outputs] if isinstance(outputs, str) else outputs
        node = helper.make_node(kind, inputs, names, name=f"{names[0]}/{kind}", domain=domain, **attributes)
        self.nodes.append(node)
        return names[0]

    def _store(self, name: str, values: NDArray[Any]) -> str:
        self.initializers.append(self.data.add(name, values))
        return name

    def _constant(self, name: str, values: NDArray[Any]) -> None:
        """A small value kept in the graph file itself, where shape inference can see it."""
        self.initializers.append(onnx.numpy_helper.from_array(values, name))

    def _model(self) -> onnx.ModelProto:
        shape = self.shape
        rows: int | str = "sequence" if self.all_logits else 1
        inputs = [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]),
        ]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", rows, shape.vocab])]
        for layer in range(shape.layers):
            for part in ("key", "value"):
                for name, values, length in (
                    ("past_key_values", inputs, "past"),
                    ("present", outputs, "present"),
                ):
                    sizes: list[str | int | None] = ["batch", shape.kv_heads, length, shape.head_dim]
                    values.append(helper.make_tensor_value_info(f"{name}.{layer}.{part}", TensorProto.FLOAT, sizes))
        graph = helper.make_graph(self.nodes, "llama", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="constraintd")

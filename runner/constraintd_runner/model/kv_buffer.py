"""Memory for keys and values of several sequences, which a graph reads and writes in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

from .graph_session import GraphSession


class KvBuffer:
    """For each layer's keys and each layer's values one array [rows, kv_heads, max_length, head_dim].

    On the CPU the arrays are zeroed lazily by the system: rows cost memory only as far as they are used.
    """

    def __init__(self, graph: GraphSession, rows: int, max_length: int) -> None:
        self._pairs = graph.cache_pairs()
        self._dtype = graph.cache_dtype
        self._device = graph.device
        self._row_shape = (graph.kv_heads, max_length, graph.head_dim)
        self._row_bytes = int(np.prod(self._row_shape)) * np.dtype(self._dtype).itemsize
        shape = (rows, *self._row_shape)
        self._arrays: list[NDArray[Any]] = []
        self._device_values: list[onnxruntime.OrtValue] = []
        if self._device == "cpu":
            self._arrays = [np.zeros(shape, self._dtype) for _ in self._pairs]
            self._addresses = [array.ctypes.data for array in self._arrays]
        else:  # not yet run on a GPU
            self._device_values = [
                onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, self._dtype, self._device, 0)
                for _ in self._pairs
            ]
            self._addresses = [value.data_ptr() for value in self._device_values]
        self._copier: onnxruntime.InferenceSession | None = None

    def bind(self, binding: Any, low: int, high: int) -> None:
        """Binds the rows low..high-1 as past and as present, as one batch."""
        shape = (high - low, *self._row_shape)
        for (past, present), address in zip(self._pairs, self._addresses, strict=True):
            start = address + low * self._row_bytes
            binding.bind_input(past, self._device, 0, self._dtype, shape, start)
            binding.bind_output(present, self._device, 0, self._dtype, shape, start)

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copies the first `length` positions of a row (on a device: all of it)."""
        if self._device == "cpu":
            for array in self._arrays:
                array[target, :, :length] = array[source, :, :length]
            return
        # ONNX Runtime's Python API has no copy between device addresses; a graph of one Identity is one.
        if self._copier is None:
            self._copier = identity_session(self._device, self._dtype)
        binding = self._copier.io_binding()
        for address in self._addresses:
            start, end = (address + row * self._row_bytes for row in (source, target))
            binding.bind_input("x", self._device, 0, self._dtype, self._row_shape, start)
            binding.bind_output("y", self._device, 0, self._dtype, self._row_shape, end)
            self._copier.run_with_iobinding(binding)


def identity_session(device: str, dtype: Any) -> onnxruntime.InferenceSession:
    """A session of one Identity node from `x` to `y`, on the device."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    sizes = ["a", "b", "c"]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "copy",
        [helper.make_tensor_value_info("x", kind, sizes)],
        [helper.make_tensor_value_info("y", kind, sizes)],
    )
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    names = ["CPUExecutionProvider"] if device == "cpu" else ["CUDAExecutionProvider", "CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=names)

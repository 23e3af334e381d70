"""Sequences for graphs that give a new, longer cache at each run (Optimum and onnx-community exports).

Each sequence runs as a batch of its own: ragged batches would need padding on the left and masks that
these graphs treat in different ways. The present outputs of one run are bound as the past inputs of the
next without passing through the host; the graph itself copies the whole cache at every step, which is
why a folder with a shared buffer is faster on long sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .graph_session import GraphSession

_CHUNK = 128  # these graphs mostly give logits for each position of a prompt: 25 MB at width 49,152


class GrowingRows:
    """Runs a graph on one sequence at a time. Owns each row's cache as the last run left it.

    Not safe for two calls at once. Lengths live with the caller, the Decoder.
    """

    def __init__(self, graph: GraphSession, rows: int, max_length: int) -> None:
        self._graph = graph
        self._pairs = graph.cache_pairs()
        shape = (1, graph.kv_heads, 0, graph.head_dim)
        empty = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, graph.cache_dtype), graph.device, 0)
        self._empty = [empty] * len(self._pairs)
        self._caches = [self._empty] * rows
        self._ones = np.ones(max_length, np.int64)
        self._positions = np.arange(max_length, dtype=np.int64)
        self._has_past = np.zeros(1, np.bool_)
        self._logits = np.zeros((rows, graph.logits_width), np.float32)

    def append(self, row: int, tokens: NDArray[np.int64], length: int) -> NDArray[Any]:
        """Logits [width] after the last of `tokens` [n], which follow the `length` tokens in the row."""
        cache = self._caches[row]
        for start in range(0, len(tokens), _CHUNK):
            logits, cache = self._run(cache, tokens[start : start + _CHUNK], length + start)
        self._logits[row] = logits
        self._caches[row] = cache
        out: NDArray[Any] = self._logits[row]
        return out

    def step(self, rows: Sequence[int], tokens: Sequence[int], lengths: NDArray[np.int64]) -> NDArray[Any]:
        """Logits [len(rows), width] after one token more in each row; `lengths` [all rows] before it."""
        out = self._logits[: len(rows)]
        caches = []
        for index, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            ids = np.array([token], np.int64)
            out[index], cache = self._run(self._caches[row], ids, int(lengths[row]))
            caches.append(cache)
        for row, cache in zip(rows, caches, strict=True):  # all or, if a run has failed, none
            self._caches[row] = cache
        return out

    def move(self, source: int, target: int, length: int) -> None:  # noqa: ARG002 - the cache knows it
        """Hands one row's cache to another."""
        self._caches[target] = self._caches[source]
        self._caches[source] = self._empty

    def clear(self, row: int) -> None:
        """Frees the row's cache."""
        self._caches[row] = self._empty

    def _run(
        self, past: list[onnxruntime.OrtValue], tokens: NDArray[np.int64], length: int
    ) -> tuple[NDArray[Any], list[onnxruntime.OrtValue]]:
        """(logits [width] after the last token, the longer cache)."""
        graph, total = self._graph, length + len(tokens)
        binding = graph.session.io_binding()
        ids = np.ascontiguousarray(tokens)
        binding.bind_input("input_ids", "cpu", 0, np.int64, (1, len(ids)), ids.ctypes.data)
        binding.bind_input("attention_mask", "cpu", 0, np.int64, (1, total), self._ones.ctypes.data)
        if graph.takes_position_ids:
            positions = self._positions[length:total]
            binding.bind_input("position_ids", "cpu", 0, np.int64, (1, len(ids)), positions.ctypes.data)
        if graph.takes_cache_branch:
            self._has_past[0] = length > 0
            binding.bind_input("use_cache_branch", "cpu", 0, np.bool_, (1,), self._has_past.ctypes.data)
        for (name, _), value in zip(self._pairs, past, strict=True):
            binding.bind_ortvalue_input(name, value)
        binding.bind_output("logits", "cpu")
        for _, present in self._pairs:
            binding.bind_output(present, graph.device)
        graph.session.run_with_iobinding(binding)
        logits, *cache = binding.get_outputs()
        return logits.numpy()[0, -1], cache

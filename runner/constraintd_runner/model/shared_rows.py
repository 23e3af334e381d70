"""Sequences in one buffer a layer, past and present bound to the same memory: nothing is ever copied.

For graphs whose GroupQueryAttention writes new keys and values in place. A row of the buffer is one
sequence. Rows are contiguous in memory, so any range of rows is a batch: a prompt runs on its row alone,
a decode step on the range from the lowest to the highest row that takes part. A row inside the range
that does not take part is fed token 0 at its own length: its key and value land just behind its last
token, are never attended to, and are overwritten by its next real token. (In a full row they land on
its last token, but a full row can only be cut shorter or released.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .graph_session import GraphSession
from .kv_buffer import KvBuffer

_CHUNK = 512
_CHUNK_ALL_LOGITS = 128  # a graph that gives logits for each position needs 25 MB for these at width 49,152


class SharedRows:
    """Runs a graph on the rows of one KvBuffer. Owns the buffer, the bindings and the input arrays.

    Not safe for two calls at once. Lengths live with the caller, the Decoder.
    """

    def __init__(self, graph: GraphSession, rows: int, max_length: int) -> None:
        self._graph = graph
        self._max_length = max_length
        self._buffer = KvBuffer(graph, rows, max_length)
        self._bindings: dict[tuple[int, int], Any] = {}
        self._chunk = _CHUNK if graph.last_logits_only else _CHUNK_ALL_LOGITS
        self._ids = np.zeros(max(rows, self._chunk), np.int64)
        self._positions = np.zeros(max(rows, self._chunk), np.int64)
        self._mask = np.ones(rows * max_length, np.int64)
        self._ones = np.ones(max_length, np.int64)
        self._columns = np.arange(max_length, dtype=np.int64)
        self._logits = np.zeros((rows, graph.logits_width), graph.logits_dtype)
        self._chunk_logits: NDArray[Any] | None = None

    def append(self, row: int, tokens: NDArray[np.int64], length: int) -> NDArray[Any]:
        """Logits [width] after the last of `tokens` [n], which follow the `length` tokens in the row."""
        logits: NDArray[Any] = self._logits[row]
        for start in range(0, len(tokens), self._chunk):
            chunk = tokens[start : start + self._chunk]
            logits = self._append_chunk(row, chunk, length + start)
        return logits

    def step(self, rows: Sequence[int], tokens: Sequence[int], lengths: NDArray[np.int64]) -> NDArray[Any]:
        """Logits [len(rows), width] after one token more in each row; `lengths` [all rows] before it."""
        low, high = min(rows), max(rows) + 1
        count = high - low
        before = lengths[low:high]  # [count]
        if count == 1:
            self._ids[0] = tokens[0]
            total = int(before[0]) + 1
            mask = self._ones
        else:
            before = np.minimum(before, self._max_length - 1)  # a full row that only fills the range
            self._ids[:count] = 0
            for row, token in zip(rows, tokens, strict=True):
                self._ids[row - low] = token
            total = int(before.max()) + 1
            mask = self._mask
            np.less_equal(self._columns[:total], before[:, None], out=mask[: count * total].reshape(count, total))
        self._positions[:count] = before
        binding = self._bind_inputs(low, high, 1, mask, total)
        out: NDArray[Any] = self._logits[low:high]  # [count, width], contiguous
        self._bind_output(binding, out, (count, 1))
        self._graph.session.run_with_iobinding(binding)
        if len(rows) == count and all(row == low + index for index, row in enumerate(rows)):
            return out
        picked: NDArray[Any] = self._logits[np.asarray(rows)]
        return picked

    def move(self, source: int, target: int, length: int) -> None:
        """Copies the first `length` tokens of one row over another."""
        self._buffer.copy_row(source, target, length)

    def clear(self, row: int) -> None:
        """Nothing to do: what lies beyond a row's length is never read."""

    def _append_chunk(self, row: int, chunk: NDArray[np.int64], length: int) -> NDArray[Any]:
        count = len(chunk)
        self._ids[:count] = chunk
        self._positions[:count] = self._columns[length : length + count]
        binding = self._bind_inputs(row, row + 1, count, self._ones, length + count)
        if self._graph.last_logits_only:
            out: NDArray[Any] = self._logits[row : row + 1]
            self._bind_output(binding, out, (1, 1))
        else:
            if self._chunk_logits is None:
                self._chunk_logits = np.zeros((self._chunk, self._graph.logits_width), self._graph.logits_dtype)
            out = self._chunk_logits[:count]
            self._bind_output(binding, out, (1, count))
        self._graph.session.run_with_iobinding(binding)
        last: NDArray[Any] = out[-1]
        return last

    def _bind_inputs(self, low: int, high: int, sequence: int, mask: NDArray[np.int64], total: int) -> Any:
        binding = self._bindings.get((low, high))
        if binding is None:
            binding = self._bindings[low, high] = self._graph.session.io_binding()
            self._buffer.bind(binding, low, high)
        shape = (high - low, sequence)
        binding.bind_input("input_ids", "cpu", 0, np.int64, shape, self._ids.ctypes.data)
        binding.bind_input("attention_mask", "cpu", 0, np.int64, (high - low, total), mask.ctypes.data)
        if self._graph.takes_position_ids:
            binding.bind_input("position_ids", "cpu", 0, np.int64, shape, self._positions.ctypes.data)
        return binding

    def _bind_output(self, binding: Any, out: NDArray[Any], batch_and_sequence: tuple[int, int]) -> None:
        shape = (*batch_and_sequence, self._graph.logits_width)
        binding.bind_output("logits", "cpu", 0, self._graph.logits_dtype, shape, out.ctypes.data)

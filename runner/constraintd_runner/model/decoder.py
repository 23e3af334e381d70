"""A language model as a set of slots: prompts go in, tokens go in, logits come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from constraintd.serving.cpu_budget import cpu_budget

from .errors import SlotError, SlotLengthError, TokenError
from .folder import ModelFolder
from .graph_session import GraphSession, open_graph
from .growing_rows import GrowingRows
from .providers import Providers
from .shared_rows import SharedRows


class _Rows(Protocol):
    """How the sequences are kept and run; rows are the physical places, slots the caller's names."""

    def append(self, row: int, tokens: NDArray[np.int64], length: int) -> NDArray[np.floating]: ...
    def step(self, rows: Sequence[int], tokens: Sequence[int], lengths: NDArray[np.int64]) -> NDArray[np.floating]: ...
    def move(self, source: int, target: int, length: int) -> None: ...
    def clear(self, row: int) -> None: ...


class Decoder:
    """One ONNX Runtime session with `slots` sequences of at most `max_length` tokens.

    Owns the session and the KV cache. Calls must not overlap, but need not come from one thread; the
    session runs without the GIL. Logits are float32 and, where the graph gives float32, views of memory
    that the next `prefill` or `decode` overwrites: use them before, or copy them.

    Sequences in use fill the lowest rows of the cache: a release moves the last one into the gap, so
    that a batch is as narrow as the number of sequences (about 46 KB a token moved, for SmolLM2-135M).
    """

    def __init__(
        self,
        graph: GraphSession,
        *,
        slots: int,
        max_length: int,
        embedding_rows: int,
        providers: Providers,
        rows: _Rows,
    ) -> None:
        self.logits_width = graph.logits_width
        self.slots = slots
        self.max_length = max_length
        self.providers = providers
        """What the session runs on, and why, for the log."""
        self._embedding_rows = embedding_rows
        self._rows = rows
        self._row_of: dict[int, int] = {}  # slot -> row
        self._slot_in: list[int] = []  # row -> slot; its length is the number of slots in use
        self._lengths = np.zeros(slots, np.int64)  # by row

    @classmethod
    def open(
        cls,
        folder: ModelFolder,
        *,
        ep: str = "cpu",
        threads: int | None = None,
        slots: int = 8,
        max_length: int | None = None,
        spinning: bool = False,
    ) -> Decoder:
        """Loads the folder's graph.

        `ep` is "cpu", "cuda" or "auto"; `threads` defaults to the CPUs that this process may use;
        `max_length` to the model's context length. With `spinning`, threads of the session burn their
        core while they wait for the next node of a run. Measured on 2 cores with SmolLM2-135M, 8 bits:
        on a quiet machine 9.4 ms a token instead of 10.5; beside one busy process 30 instead of 19.
        Raises FolderError, ProviderError, SlotLengthError (no slots or no room asked for).
        """
        limit = folder.context_length if max_length is None else min(max_length, folder.context_length)
        if limit < 1 or slots < 1:
            raise SlotLengthError(f"slots ({slots}) and max_length ({limit}) must be at least 1")
        graph, providers = open_graph(folder, ep, threads=threads or cpu_budget(), spinning=spinning)
        rows: _Rows
        rows = SharedRows(graph, slots, limit) if folder.shares_buffer else GrowingRows(graph, slots, limit)
        known = max(graph.logits_width, folder.embedding_rows or 0)
        return cls(graph, slots=slots, max_length=limit, embedding_rows=known, providers=providers, rows=rows)

    def acquire(self) -> int:
        """A free slot, empty. Raises SlotError if all are in use."""
        if len(self._slot_in) == self.slots:
            raise SlotError(f"all {self.slots} slots are in use; release one, or open more")
        slot = next(slot for slot in range(self.slots) if slot not in self._row_of)
        self._row_of[slot] = len(self._slot_in)
        self._lengths[len(self._slot_in)] = 0
        self._slot_in.append(slot)
        return slot

    def prefill(self, slot: int, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Appends `tokens` [n >= 1] to the slot; gives the logits [logits_width] after the last one.

        May be called again on the same slot, to go on after a turn or to give a prompt in parts.
        Raises SlotError, SlotLengthError or TokenError; the slot is then as it was.
        """
        row = self._row(slot)
        tokens = np.asarray(tokens, np.int64).reshape(-1)
        if not len(tokens):
            raise SlotLengthError(f"slot {slot}: no tokens were given")
        self._check_tokens(int(tokens.min()), int(tokens.max()))
        length = int(self._lengths[row])
        self._check_room(slot, length, len(tokens))
        logits = self._rows.append(row, tokens, length)
        self._lengths[row] = length + len(tokens)
        return logits.astype(np.float32, copy=False)

    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        """Appends one token to each of the slots; gives their logits [len(slots), logits_width].

        Slots may come in any order and stay away as they like. Raises SlotError (also for a slot named
        twice), SlotLengthError or TokenError; all slots are then as they were.
        """
        rows = [self._row(slot) for slot in slots]
        if not rows or len(rows) != len(tokens) or len(set(rows)) != len(rows):
            raise SlotError(f"decode needs distinct slots and a token for each: {slots}, {len(tokens)} tokens")
        self._check_tokens(min(tokens), max(tokens))
        for slot, row in zip(slots, rows, strict=True):
            if self._lengths[row] >= self.max_length:
                self._check_room(slot, int(self._lengths[row]), 1)
        logits = self._rows.step(rows, tokens, self._lengths)
        self._lengths[rows] += 1
        return logits.astype(np.float32, copy=False)

    def length(self, slot: int) -> int:
        """Tokens in the slot so far. Raises SlotError."""
        return int(self._lengths[self._row(slot)])

    def release(self, slot: int) -> None:
        """Frees the slot; its number may come again from `acquire`. Raises SlotError."""
        row = self._row(slot)
        last = len(self._slot_in) - 1
        moved = self._slot_in[last]
        if row != last:
            self._rows.move(last, row, int(self._lengths[last]))
            self._lengths[row] = self._lengths[last]
            self._slot_in[row] = moved
            self._row_of[moved] = row
        self._rows.clear(last)
        self._slot_in.pop()
        del self._row_of[slot]

    def _row(self, slot: int) -> int:
        try:
            return self._row_of[slot]
        except KeyError:
            raise SlotError(f"slot {slot} is not in use") from None

    def _check_tokens(self, lowest: int, highest: int) -> None:
        # A graph reads a negative id from the end of its embedding, and ONNX Runtime's block-quantised
        # embedding reads an id past the end from memory that is not its own, both without a word.
        if lowest < 0 or highest >= self._embedding_rows:
            wrong = lowest if lowest < 0 else highest
            raise TokenError(f"token id {wrong} is outside the model's embedding of {self._embedding_rows} rows")

    def _check_room(self, slot: int, length: int, more: int) -> None:
        if length + more > self.max_length:
            raise SlotLengthError(
                f"slot {slot} holds {length} of at most {self.max_length} tokens; {more} more do not fit"
            )

"""How often each token stands among the last ones: the statistics of the window penalty."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from constraintd.encoding import Reader, Writer
from constraintd.sampler.adjustments import Adjustments
from constraintd.sampler.config import WindowPenalty
from constraintd.sampler.ngram_rule import LARGEST_ADJUSTMENT, within
from constraintd.vocabulary.vocabulary import Vocabulary

_ID, _OWN, _PROMPT = range(3)  # rows of the counts
_FIRST_CAPACITY = 64
_COMPACT_FROM = 4096  # evicted tokens that are kept before they are swept out


class WindowCounts:
    """The window's tokens and their counts. Mutated only by `append` and `prompt`; `fork` gives an independent copy.

    Counts stand sorted by id, so they are a function of the window's tokens alone: only those are written down.
    """

    __slots__ = ("_begin", "_counts", "_id_limit", "_logits_width", "_penalty", "_size", "_tokens")

    def __init__(self, penalty: WindowPenalty, vocabulary: Vocabulary) -> None:
        self._penalty = penalty
        self._logits_width = vocabulary.logits_width
        self._id_limit = max(vocabulary.logits_width, len(vocabulary.token_bytes))
        self._tokens = array("I")  # 2 * id, + 1 for a prompt's token
        self._begin = 0  # of the window in _tokens
        self._size = 0  # distinct ids
        self._counts: NDArray[np.int64] = np.zeros((3, _FIRST_CAPACITY), dtype=np.int64)  # [3, capacity], ids ascending

    def append(self, token: int) -> None:
        """An accepted token."""
        self._tokens.append(2 * token)
        self._change(token, _OWN, 1)
        window = self._penalty.window
        if window is not None and len(self._tokens) - self._begin > window:
            gone = self._tokens[self._begin]
            self._begin += 1
            self._change(gone >> 1, _PROMPT if gone & 1 else _OWN, -1)
            if self._begin >= _COMPACT_FROM and 2 * self._begin > len(self._tokens):
                self._drop_evicted()

    def prompt(self, tokens: Sequence[int]) -> None:
        """A prompt's tokens: in the window in any case, counted by the options."""
        self._tokens.extend(2 * token + 1 for token in tokens)
        self._recount()

    def adjustments(self) -> Adjustments | None:
        """What the penalty comes to behind the window."""
        penalty = self._penalty
        # A tokenizer may list more ids than the model has logits.
        n = int(self._counts[_ID, : self._size].searchsorted(self._logits_width))
        own, prompt = self._counts[_OWN, :n], self._counts[_PROMPT, :n]
        counted = own + prompt if penalty.frequency_counts_prompt else own
        occurs = own + prompt if penalty.repetition_counts_prompt else own
        frequency, presence = np.clip([penalty.frequency, penalty.presence], -LARGEST_ADJUSTMENT, LARGEST_ADJUSTMENT)
        scales = np.where(occurs > 0, penalty.repetition, 1.0)
        offsets = -(counted * frequency + (counted > 0) * presence)
        changed = ((scales != 1.0) | (offsets != 0.0)).nonzero()[0]
        if changed.size == 0:
            return None
        return Adjustments(
            ids=self._counts[_ID].take(changed).astype(np.uint32),
            scales=within(scales.take(changed), 1 / LARGEST_ADJUSTMENT, LARGEST_ADJUSTMENT),
            offsets=within(offsets.take(changed), -LARGEST_ADJUSTMENT, LARGEST_ADJUSTMENT),
        )

    def reconfigured(self, penalty: WindowPenalty) -> WindowCounts:
        """The same tokens under other options; those that another window has evicted don't come back."""
        twin = self.fork()
        twin._penalty = penalty
        twin._recount()
        return twin

    def fork(self) -> WindowCounts:
        """The same counts, to go on from independently."""
        twin = object.__new__(WindowCounts)
        twin._penalty = self._penalty
        twin._logits_width = self._logits_width
        twin._id_limit = self._id_limit
        twin._tokens = self._tokens[self._begin :]
        twin._begin = 0
        twin._size = self._size
        twin._counts = self._counts.copy()
        return twin

    def write(self, writer: Writer) -> None:
        """The window's tokens."""
        writer.numbers(self._tokens[self._begin :])

    @classmethod
    def read(cls, reader: Reader, penalty: WindowPenalty, vocabulary: Vocabulary) -> WindowCounts:
        """What `write` wrote under the same options. Raises InvalidEnvelope."""
        self = cls(penalty, vocabulary)
        self._tokens.extend(reader.numbers(below=2 * self._id_limit))
        if penalty.window is not None and len(self._tokens) > penalty.window:
            raise reader.error(f"{len(self._tokens)} tokens, yet the window has {penalty.window}")
        self._recount()
        return self

    def _change(self, token: int, kind: int, by: int) -> None:
        counts = self._counts
        size = self._size
        at = int(counts[_ID, :size].searchsorted(token))
        if at == size or counts.item(_ID, at) != token:
            if size == counts.shape[1]:
                self._counts = counts = np.pad(counts, ((0, 0), (0, size)))
            counts[:, at + 1 : size + 1] = counts[:, at:size]
            counts[:, at] = (token, 0, 0)
            self._size = size + 1
        counts[kind, at] += by
        if by < 0 and not counts[_OWN:, at].any():
            counts[:, at : size - 1] = counts[:, at + 1 : size]
            self._size = size - 1

    def _drop_evicted(self) -> None:
        del self._tokens[: self._begin]
        self._begin = 0

    def _recount(self) -> None:
        """Counts the last `window` tokens anew."""
        if self._penalty.window is not None:
            self._begin = max(self._begin, len(self._tokens) - self._penalty.window)
        self._drop_evicted()
        tokens = np.array(self._tokens, dtype=np.int64)  # [n], a copy: a view would bar the array from growing
        ids, at = np.unique(tokens >> 1, return_inverse=True)  # [m], [n]
        of_prompt = np.bincount(at, weights=tokens & 1, minlength=len(ids))  # [m]
        self._size = len(ids)
        self._counts = np.zeros((3, max(_FIRST_CAPACITY, 2 * len(ids))), dtype=np.int64)
        self._counts[_ID, : len(ids)] = ids
        self._counts[_OWN, : len(ids)] = np.bincount(at, minlength=len(ids)) - of_prompt
        self._counts[_PROMPT, : len(ids)] = of_prompt

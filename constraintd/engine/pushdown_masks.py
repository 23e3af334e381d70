"""Finished masks by state, within a memory bound, shared by all sessions of a grammar.

Equal masks are kept once: of 2,175 states met in a JSON corpus most differ only in what they are nested in. That saves
memory, and keeps the ones in use in the processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from constraintd.mask.packed import Words

_ENTRY_BYTES = 200


@dataclass(slots=True)
class KeptMask:
    """A mask, not to be written to, and whether anybody asked for it lately: a reader sets `used`."""

    words: Words
    key: int
    used: bool = False


class MaskCache:
    """Masks by state number. Reading `kept` takes no lock; callers of `put` hold the automaton's.

    Eviction is by second chance (Corbato, 1968): a reader only sets a flag, so a warm mask costs one dictionary
    look-up, where an exact LRU order would need a lock around each.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.kept: dict[int, KeptMask] = {}
        self._distinct: dict[int, tuple[Words, int]] = {}  # by hash: the mask, and how many entries have it
        self.byte_size = 0
        """Bytes that the masks and their entries take."""

    def put(self, state: int, words: Words) -> Words:
        """Keeps a mask, and drops others that nobody asked for lately until it fits. Gives the one kept."""
        if words.nbytes > self._max_bytes or state in self.kept:
            return words
        while self.kept and self.byte_size + words.nbytes + _ENTRY_BYTES > self._max_bytes:
            self._drop_one()
        key = hash(words.tobytes())
        present, count = self._distinct.get(key, (words, 0))
        if count and not np.array_equal(present, words):  # equal hashes of different masks: as good as never
            return words
        self._distinct[key] = (present, count + 1)
        self.kept[state] = KeptMask(present, key)
        self.byte_size += _ENTRY_BYTES + (0 if count else words.nbytes)
        return present

    def _drop_one(self) -> None:
        while True:
            oldest = next(iter(self.kept))
            entry = self.kept.pop(oldest)
            if not entry.used:
                break
            entry.used = False
            self.kept[oldest] = entry
        words, count = self._distinct.pop(entry.key)
        self.byte_size -= _ENTRY_BYTES
        if count > 1:
            self._distinct[entry.key] = (words, count - 1)
        else:
            self.byte_size -= words.nbytes

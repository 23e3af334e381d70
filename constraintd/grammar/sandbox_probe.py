"""A walk through a compiled grammar that looks for steps which take too long, past the first token.

Some grammars compile in a moment and die in use: the items of a wide object, the states of a counted repetition. The
probe goes along several paths, so that it meets more than the one place that every text begins at.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from constraintd.engine.matcher import CompiledGrammar
from constraintd.mask.packed import Words, empty, of_ids
from constraintd.vocabulary.vocabulary import Vocabulary

# One byte each: what opens, closes and parts the pieces of JSON and of most grammars. A walk that prefers them gets
# out of strings, where any other walk would stay for good.
_STRUCTURE = frozenset(bytes([byte]) for byte in b'"{}[]():,;<>=+-*/|.\\\n 0e')
_SEED = 20260901
# An ordinary grammar's step costs some 70 us here; all of 4 x 50 would be most of what a compilation costs.
# So every path is begun, and gone to its end where all of that is cheap, or where any step was not ordinary.
_FIRST_STEPS = 5
_CHEAP_SECONDS = 0.002
_ORDINARY_SECONDS = 0.001
_COPIED_AT = 4

Filled = NDArray[np.int64]
"""The places of a mask's words that have a bit set, ascending. Worked out once a step: a tenth of the probe's time."""

Choose = Callable[[Words, Filled], int]
"""Picks a legal token from a mask that has one."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What a walk met."""

    steps: int
    """Taken in all."""
    slowest_seconds: float
    """CPU time of the slowest mask, advance or copy."""
    texts: tuple[bytes, ...]
    """Whole texts of the grammar that lay on the way, at most one a path."""


class Prober:
    """Walks the grammars of one vocabulary. Immutable; made once, before any child is forked."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        width = vocabulary.logits_width
        self._width = width
        self._token_bytes = vocabulary.token_bytes
        self._not_eog = ~of_ids(vocabulary.eog_ids, width)
        structure = (i for i, content in enumerate(vocabulary.token_bytes[:width]) if content in _STRUCTURE)
        self._structure = of_ids(structure, width)

    def walk(self, grammar: CompiledGrammar, *, steps: int, enough_seconds: float) -> Probed:
        """Goes along each path: the lowest legal ids, the highest, random ones, and random ones that prefer structure.

        Each path is taken for its first steps; then, if a step was slow or while the whole walk is cheap, to `steps`
        steps or its end. Stops at a step over `enough_seconds`. Raises LimitExceeded where the engine gives up.
        """
        taken = 0
        slowest = spent = 0.0
        choices = (_lowest, _highest, _anywhere(random.Random(_SEED)), self._by_structure(random.Random(_SEED)))
        texts: dict[Choose, bytes] = {}
        paths = [self._path(grammar, choose, steps, texts) for choose in choices]
        for path in (*(islice(path, _FIRST_STEPS) for path in paths), *paths):
            for seconds in path:
                taken += 1
                spent += seconds
                slowest = max(slowest, seconds)
                if slowest > enough_seconds:
                    return Probed(taken, slowest, tuple(texts.values()))
                begun = taken > len(paths) * _FIRST_STEPS
                if begun and spent > _CHEAP_SECONDS and slowest < _ORDINARY_SECONDS:
                    break
        return Probed(taken, slowest, tuple(texts.values()))

    def _path(
        self, grammar: CompiledGrammar, choose: Choose, steps: int, texts: dict[Choose, bytes]
    ) -> Iterator[float]:
        """Gives the time of the slowest part of each step; keeps the last whole text that it passes in `texts`."""
        words = empty(self._width)
        text = bytearray()
        began = time.thread_time()
        matcher = grammar.start()
        yield time.thread_time() - began
        for step in range(steps):
            began = time.thread_time()
            matcher.fill_mask(words)
            masked = time.thread_time()
            if matcher.is_accepting():
                texts[choose] = bytes(text)
            np.bitwise_and(words, self._not_eog, out=words)
            filled = words.nonzero()[0]
            if not len(filled):
                yield masked - began
                return
            token = choose(words, filled)
            text += self._token_bytes[token] if token < len(self._token_bytes) else b""
            chosen = time.thread_time()
            matcher.consume(token)
            consumed = time.thread_time()
            if step == _COPIED_AT:
                matcher.fork()
            yield max(masked - began, consumed - chosen, time.thread_time() - consumed)

    def _by_structure(self, rng: random.Random) -> Choose:
        anywhere = _anywhere(rng)

        def choose(words: Words, filled: Filled) -> int:
            preferred = np.bitwise_and(words, self._structure)
            among = preferred.nonzero()[0]
            return anywhere(preferred, among) if len(among) else anywhere(words, filled)

        return choose


def _lowest(words: Words, filled: Filled) -> int:
    index = int(filled[0])
    word = int(words[index])
    return 32 * index + (word & -word).bit_length() - 1


def _highest(words: Words, filled: Filled) -> int:
    index = int(filled[-1])
    return 32 * index + int(words[index]).bit_length() - 1


def _anywhere(rng: random.Random) -> Choose:
    def choose(words: Words, filled: Filled) -> int:
        # A random word, then a random bit of it: not uniform over the ids, but cheap on a wide mask.
        index = int(filled[rng.randrange(len(filled))])
        word = int(words[index])
        return 32 * index + rng.choice([bit for bit in range(32) if word >> bit & 1])

    return choose

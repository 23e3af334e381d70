"""Which texts stay where a grammar is permissive: inside of a string, say, and not beyond its closing quote.

A place is permissive if the grammar isn't complete there and at least PERMISSIVE_BYTES bytes may come next. A text
stays iff that holds behind each of its bytes, the last one included.

Many short texts are asked about at once, so they are walked as a trie: in byte order, each shared beginning once, and
never past a byte that leaves.

Source: the permissive regions of drama_llama's n-gram penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from constraintd.engine.matcher import ByteMatcher
from constraintd.engine.region import PERMISSIVE_BYTES


class PermissiveWalk(Protocol):
    """A place that goes on byte by byte, and back again."""

    def enter(self, byte: int) -> bool:
        """Goes on over a byte if the place behind it is permissive; False, the place unchanged, if not.

        Raises LimitExceeded.
        """

    def leave(self) -> None:
        """Takes the last byte that was entered back."""


class ForkWalk:
    """By a fork a byte, for engines whose forks cost next to nothing."""

    def __init__(self, matcher: ByteMatcher) -> None:
        self._matchers: Final = [matcher]
        self._legal: Final = [matcher.legal_bytes()]

    def enter(self, byte: int) -> bool:
        """See PermissiveWalk."""
        if not self._legal[-1][byte]:
            return False
        ahead = self._matchers[-1].fork()
        if not ahead.consume_bytes(bytes([byte])) or ahead.is_accepting():
            return False
        legal = ahead.legal_bytes()
        if np.count_nonzero(legal) < PERMISSIVE_BYTES:
            return False
        self._matchers.append(ahead)
        self._legal.append(legal)
        return True

    def leave(self) -> None:
        """See PermissiveWalk."""
        self._matchers.pop()
        self._legal.pop()


def staying(walk: PermissiveWalk, texts: Sequence[bytes]) -> list[bool]:
    """Whether each text stays; an empty one doesn't. The walk is afterwards where it was. Raises LimitExceeded."""
    stay = [False] * len(texts)
    enter, leave = walk.enter, walk.leave
    path = b""  # the text walked last, up to its first byte that leaves, that one included
    entered = 0  # how many of its bytes the walk has entered: all, or all but the last
    for index in sorted(range(len(texts)), key=texts.__getitem__):
        text = texts[index]
        shared = _shared(path, text)
        if entered < len(path) == shared:
            continue  # it begins with a text that has left
        while entered > shared:
            leave()
            entered -= 1
        while entered < len(text) and enter(text[entered]):
            entered += 1
        path = text[: entered + 1]
        stay[index] = entered == len(text) > 0
    for _ in range(entered):
        leave()
    return stay


def _shared(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    shared = 0
    for mine, others in zip(one, other, strict=False):
        if mine != others:
            break
        shared += 1
    return shared

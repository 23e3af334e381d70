"""Special tokens in text: where text spells them, and how to encode around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """A tokenizer's special tokens, prepared for searching."""

    ids: Mapping[str, int]
    """Spelling -> id."""
    pattern: re.Pattern[str]
    """Finds any of them; of two that begin at the same place the longer, as the tokenizers do."""
    heads: frozenset[str]
    """Every proper beginning of one."""
    tails: frozenset[str]
    """Every proper end of one."""
    longest: int
    """Characters of the longest."""

    @classmethod
    def of(cls, ids: Mapping[str, int]) -> SpecialTokens:
        """From spelling -> id; an empty spelling is left out."""
        spellings = sorted((spelling for spelling in ids if spelling), key=len, reverse=True)
        return cls(
            ids={spelling: ids[spelling] for spelling in spellings},
            pattern=re.compile("|".join(map(re.escape, spellings)) or "(?!)"),  # (?!) matches nothing
            heads=frozenset(spelling[:size] for spelling in spellings for size in range(1, len(spelling))),
            tails=frozenset(spelling[-size:] for spelling in spellings for size in range(1, len(spelling))),
            longest=len(spellings[0]) if spellings else 0,
        )

    def found_in(self, text: str) -> list[int]:
        """Ids of those that the text spells, in order."""
        return [self.ids[spelling] for spelling in self.pattern.findall(text)]

    def begun_at_end(self, text: str) -> int:
        """Length of the longest proper beginning of one with which the text ends."""
        for size in range(min(self.longest - 1, len(text)), 0, -1):
            if text[-size:] in self.heads:
                return size
        return 0

    def ended_at_start(self, text: str) -> int:
        """Length of the longest proper end of one with which the text starts."""
        for size in range(min(self.longest - 1, len(text)), 0, -1):
            if text[:size] in self.tails:
                return size
        return 0

    def encode_around(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Ids of the text: its special tokens as such, and what lies between them through `encode`."""
        ids: list[int] = []
        at = 0
        for found in self.pattern.finditer(text):
            if found.start() > at:
                ids += encode(text[at : found.start()])
            ids.append(self.ids[found.group()])
            at = found.end()
        return ids + encode(text[at:]) if at < len(text) else ids

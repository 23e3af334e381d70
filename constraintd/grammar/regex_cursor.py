"""A place in a pattern: what the two readers of patterns read from, and where their errors point."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NoReturn

from constraintd.errors import InvalidGrammar


class Cursor:
    """Owns the place in one pattern; one reader moves it forward."""

    __slots__ = ("index", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.index = 0

    def peek(self, ahead: int = 0) -> str:
        """The character so far ahead, `""` past the end."""
        at = self.index + ahead
        return self.pattern[at : at + 1]

    def next(self) -> str:
        """The next character, stepped over; `""` at the end."""
        char = self.pattern[self.index : self.index + 1]
        self.index += len(char)
        return char

    def skip(self, text: str) -> bool:
        """Step over `text` if it comes next."""
        if self.pattern.startswith(text, self.index):
            self.index += len(text)
            return True
        return False

    def match(self, expected: re.Pattern[str]) -> re.Match[str] | None:
        """Step over what `expected` matches here."""
        found = expected.match(self.pattern, self.index)
        if found is not None:
            self.index = found.end()
        return found

    def take(self, most: int, allowed: Container[str]) -> str:
        """Up to `most` characters out of `allowed`, stepped over."""
        begin = self.index
        while self.index - begin < most and self.peek() and self.peek() in allowed:
            self.index += 1
        return self.pattern[begin : self.index]

    def fail(self, problem: str, remedy: str, *, at: int | None = None) -> NoReturn:
        """Raise `error`."""
        raise self.error(problem, remedy, at=at)

    def error(self, problem: str, remedy: str, *, at: int | None = None) -> InvalidGrammar:
        """The error for `problem` at the index `at` (None: here)."""
        return pattern_error(self.pattern, self.index if at is None else at, problem, remedy)


def pattern_error(pattern: str, index: int, problem: str, remedy: str) -> InvalidGrammar:
    """`problem` at `index` of `pattern`; metadata `location` is line:column, both from 1, in characters."""
    line = pattern.count("\n", 0, index) + 1
    column = index - pattern.rfind("\n", 0, index)
    location = f"{line}:{column}"
    return InvalidGrammar(f"{problem} at {location}; {remedy}", location=location)

"""Questions about regular languages, answered by the engine that will read them.

Asking llguidance itself keeps its regex syntax in one place. A question compiles a small grammar over single bytes,
1 to 5 ms; answers are kept while the object lives, that is during one compilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from llguidance import LLMatcher, LLTokenizer
from llguidance._lib import LLParserLimits

from constraintd.grammar.structural_tag_graph import NON_ASCII
from constraintd.grammar.structural_tag_terminal import ANYTHING, Terminal, both, choice, concatenation, pattern

_LIMITS: Final = LLParserLimits(verbose_errors=False)


@dataclass(frozen=True, slots=True)
class Beginnings:
    """How the texts of a language can begin."""

    empty: bool
    """One of them is empty."""
    first: frozenset[int]
    """First characters, by ASCII code, NON_ASCII for all others."""


class CantRead(Exception):
    """The engine can't read a terminal, or not within its limits. Never leaves the structural tag modules."""


class Overlaps:
    """Owns a byte tokenizer and the answers so far; one compilation's own, not shared between threads."""

    def __init__(self) -> None:
        self._tokenizer = LLTokenizer("byte")
        self._answers: dict[str, Beginnings] = {}

    def beginnings(self, terminal: Terminal) -> Beginnings:
        """How its texts begin. Raises CantRead."""
        if terminal.value is not None:
            first = terminal.value[:1]
            return Beginnings(not first, frozenset({min(ord(first), NON_ASCII)} if first else ()))
        answer = self._answers.get(terminal.text)
        if answer is None:
            answer = self._answers[terminal.text] = self._ask(terminal)
        return answer

    def follows_into(self, finished: Terminal, following: frozenset[int], rivals: list[Terminal]) -> bool:
        """True if a text of `finished` and one of the following characters together begin a text of a rival.

        A greedy lexer would then read on instead of ending `finished` there. Raises CantRead.
        """
        if not following:
            return False
        asked = []
        for rival in rivals:
            if finished.value is None or rival.value is None:
                asked.append(rival)
            elif rival.value.startswith(finished.value):
                after = rival.value[len(finished.value) :][:1]
                if after and min(ord(after), NON_ASCII) in following:
                    return True
        if not asked:
            return False
        longer = concatenation([finished, characters(following), ANYTHING])
        answer = self.beginnings(both(longer, choice(asked)))
        return answer.empty or bool(answer.first)

    def _ask(self, terminal: Terminal) -> Beginnings:
        grammar = f'start: X\nX: {terminal.text}\n%llguidance {{"no_forcing": true}}\n'
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise CantRead(_reason(matcher.get_error()))
        mask = matcher.compute_bitmask()
        if matcher.is_error() and not matcher.get_error().startswith("NoExtension"):
            raise CantRead(_reason(matcher.get_error()))
        first = {min(byte, NON_ASCII) for byte in range(256) if mask[byte >> 3] >> (byte & 7) & 1}
        if matcher.is_error():
            return Beginnings(False, frozenset())
        return Beginnings(matcher.is_accepting(), frozenset(first))


def _reason(error: str) -> str:
    """The line of an engine's error that says what is wrong."""
    lines = [line.strip() for line in error.strip().splitlines()]
    return next((line for line in lines if line.startswith("error:")), lines[0] if lines else "no reason given")[:300]


def characters(codes: frozenset[int]) -> Terminal:
    """One character out of a set; NON_ASCII in it stands for all characters past ASCII."""
    ranges = "".join(f"\\x{code:02x}" for code in sorted(codes - {NON_ASCII}))
    others = "\\u{80}-\\u{10ffff}" if NON_ASCII in codes else ""
    return pattern(f"[{ranges}{others}]", nullable=False)

"""The rules and terminals of one Lark text in the making, and how names are spelled in them."""

from __future__ import annotations

import json
import re
from typing import Final

# Past these a schema is left to %json: each rule and each %json costs the engine time (10 us a rule).
_MAX_RULES: Final = 3_000
_MAX_TEXT: Final = 400_000
# The engine compiles a rule from within the one that names it first: measured, 1,500 fill a stack of 4 MiB.
_MAX_CHAIN: Final = 800
_RULE_NAME: Final = re.compile(r"\br[0-9]+[nrst]?\b")

# A quoted name, with an escape only where JSON asks for one.
_NAME: Final = r'/"(?:[^"\\\x00-\x1f\x7f]|\\["\\bfnrt]|\\u00(?:[01][0-9a-fA-F]|7[fF]))*"/'
_ESCAPED_VARIOUSLY: Final = re.compile(r"[\x00-\x1f\x7f]")


class TooLarge(Exception):
    """The text would outgrow its limits."""


class LarkRules:
    """Owns the rules by name, in the order in which they were begun. Raises TooLarge past its limits."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._terminals: dict[str, str] = {}
        self._size = 0

    def begin(self) -> str:
        """The name of a new rule, to be written later."""
        return self.write(f"r{len(self._bodies)}", "")

    def add(self, body: str) -> str:
        """The name of a new rule."""
        return self.write(f"r{len(self._bodies)}", body)

    def write(self, name: str, body: str) -> str:
        """Writes a rule that was begun, or one of a name of its own; gives the name."""
        self._size += len(body)
        if len(self._bodies) >= _MAX_RULES or self._size > _MAX_TEXT:
            raise TooLarge
        self._bodies[name] = body
        return name

    def terminal(self, body: str) -> str:
        """The name of the terminal that is written so."""
        if body not in self._terminals:
            self._terminals[body] = self.write(f"T{len(self._terminals)}", body)
        return self._terminals[body]

    def check_chain(self, start: str) -> None:
        """Raises TooLarge if rules lead one from within the other, each followed once, further than the engine goes."""
        seen = {start}
        stack = [iter(self._named(start))]
        while stack:
            name = next(stack[-1], None)
            if name is None:
                stack.pop()
            elif name not in seen:
                seen.add(name)
                stack.append(iter(self._named(name)))
                if len(stack) > _MAX_CHAIN:
                    raise TooLarge

    def _named(self, name: str) -> list[str]:
        body = self._bodies.get(name, "") or self._bodies.get(f"{name}::_ ", "")
        return [] if body.startswith("%json") else _RULE_NAME.findall(body)

    def lines(self) -> list[str]:
        """A definition a line."""
        return [f"{name}: {body}" for name, body in self._bodies.items()]


def literal(text: str) -> str:
    """The text as a Lark string, which may not hold a raw DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def quoted(name: str) -> str:
    """The name as JSON has it, as a Lark string."""
    return literal(json.dumps(name, ensure_ascii=False))


def other_names(taken: list[str]) -> str:
    """A terminal's body for quoted names other than these, in whatever spelling.

    A pattern of the engine's strings would do the same, but keeps the engine from its shortcuts for strings: measured,
    0.5 ms a mask instead of 0.03. So here only what needs an escape may have one.
    """
    spellings = [_spellings(name) if _ESCAPED_VARIOUSLY.search(name) else quoted(name) for name in taken]
    return f"{_NAME} & ~({' | '.join(spellings)})" if taken else _NAME


def _spellings(name: str) -> str:
    """The regex for all quoted spellings of a name that the terminal above takes."""
    return f'/"{"".join(map(_spellings_of, name))}"/'


def _spellings_of(char: str) -> str:
    if char in '"\\':
        return rf"\\\{char}"
    if _ESCAPED_VARIOUSLY.match(char):
        digits = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{ord(char):02x}")
        short = json.dumps(char)[2:-1]
        return rf"\\(?:u00{digits}{'' if len(short) != 1 else '|' + short})"
    return rf"\x{{{ord(char):x}}}"

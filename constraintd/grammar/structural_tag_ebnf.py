"""XGrammar's EBNF, as far as it is plain: rules of literals, character classes, groups, choices and repetitions.

Close to llama.cpp's GBNF. What XGrammar adds (look-ahead, TagDispatch and other macros) is refused by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from constraintd.grammar.structural_tag_format import refuse

MAX_REPEAT: Final = 4096
"""Most copies that a counted repetition may ask for."""
_MAX_DEPTH: Final = 100


@dataclass(frozen=True, slots=True)
class Text:
    """A literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Class:
    """One character in, or if negated not in, one of these ranges of code points."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Name:
    """A rule's name."""

    name: str


@dataclass(frozen=True, slots=True)
class Series:
    """Parts in order; none for the empty text."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of at least two options."""

    options: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part at least and at most so many times; None for no upper bound."""

    part: Part
    least: int
    most: int | None


Part = Text | Class | Name | Series | Choice | Repeat

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)
      | (?P<define>(?P<rule>[A-Za-z_][A-Za-z0-9_.-]*)[ \t]*::=)
      | (?P<macro>[A-Za-z_][A-Za-z0-9_]*\()
      | (?P<name>[A-Za-z_][A-Za-z0-9_.-]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*")
      | (?P<class>\[(?:[^\]\\]|\\.)*\])
      | (?P<look>\(=)
      | (?P<times>[*+?]|\{[ ]*[0-9]+[ ]*(?:,[ ]*[0-9]*[ ]*)?\})
      | (?P<mark>[().|])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|([^\\])", re.DOTALL)
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "[": "[", "]": "]", "-": "-"}
_CLASS_ONLY: Final = {"^": "^", "+": "+", "*": "*", "?": "?", ".": ".", "/": "/", "(": "(", ")": ")"}
_ANY: Final = Class((), negated=True)


def parse_ebnf(text: str, pointer: str) -> dict[str, Part]:
    """The rules by name, `root` among them. Raises InvalidGrammar with the place (JSON pointer, line:column)."""
    return _Parser(text, pointer).rules()


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, pointer: str) -> None:
        self._text = text
        self._pointer = pointer
        self._tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                self._refuse(at, "no rule, literal, class, group or repetition begins here")
            kind = token.lastgroup or ""
            kind = "define" if kind == "rule" else kind
            if kind == "macro":
                self._refuse(at, f"{token[0]}...) is an XGrammar macro, which is not taken here")
            if kind == "look":
                self._refuse(at, "look-ahead (= ...) is not taken here")
            if kind != "space":
                self._tokens.append((kind, token["rule"] or token[0], at))
            at = token.end()
        self._at = 0

    def rules(self) -> dict[str, Part]:
        """All of them; every name is defined once."""
        rules: dict[str, Part] = {}
        used: dict[str, int] = {}
        while self._at < len(self._tokens):
            kind, name, at = self._tokens[self._at]
            if kind != "define":
                self._refuse(at, "a rule begins with `name ::=`")
            if name in rules:
                self._refuse(at, f"the rule {name} is defined twice")
            self._at += 1
            rules[name] = self._choice(0, used)
            if self._peek() == "mark":
                self._refuse(self._tokens[self._at][2], "this parenthesis closes nothing")
        if "root" not in rules:
            self._refuse(0, "there is no rule root")
        for name, at in used.items():
            if name not in rules:
                self._refuse(at, f"the rule {name} is not defined")
        return rules

    def _choice(self, depth: int, used: dict[str, int]) -> Part:
        if depth > _MAX_DEPTH:
            self._refuse(self._tokens[self._at - 1][2], f"groups are nested deeper than {_MAX_DEPTH}")
        options = [self._series(depth, used)]
        while self._peek() == "mark" and self._tokens[self._at][1] == "|":
            self._at += 1
            options.append(self._series(depth, used))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _series(self, depth: int, used: dict[str, int]) -> Part:
        parts: list[Part] = []
        while self._peek() not in ("", "define"):
            kind, text, at = self._tokens[self._at]
            if kind == "mark" and text in "|)":
                break
            self._at += 1
            if kind == "text":
                parts.append(Text("".join(self._characters(text[1:-1], at + 1, _LETTERS))))
            elif kind == "class":
                parts.append(self._class(text[1:-1], at + 1))
            elif kind == "name":
                used.setdefault(text, at)
                parts.append(Name(text))
            elif text == ".":
                parts.append(_ANY)
            elif text == "(":
                parts.append(self._choice(depth + 1, used))
                if self._peek() != "mark" or self._tokens[self._at][1] != ")":
                    self._refuse(at, "this parenthesis is never closed")
                self._at += 1
            elif not parts:
                self._refuse(at, f"{text} repeats nothing")
            else:
                parts[-1] = self._repeat(parts[-1], text, at)
        return parts[0] if len(parts) == 1 else Series(tuple(parts))

    def _repeat(self, part: Part, times: str, at: int) -> Part:
        if times in "*+?":
            return Repeat(part, int(times == "+"), 1 if times == "?" else None)
        low, comma, high = times[1:-1].replace(" ", "").partition(",")
        least, most = int(low), int(low) if not comma else int(high) if high else None
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            self._refuse(at, f"{times}: counts go up to {MAX_REPEAT}, the lower one first")
        return Repeat(part, least, most)

    def _class(self, text: str, at: int) -> Part:
        negated = text.startswith("^")
        body = text[negated:]
        ranges: list[tuple[int, int]] = []
        raw = [found[0] for found in _ESCAPE.finditer(body)]
        points = [ord(c) for c in self._characters(body, at + negated, _LETTERS | _CLASS_ONLY)]
        i = 0
        while i < len(points):
            if i + 2 < len(points) and raw[i + 1] == "-":
                if points[i] > points[i + 2]:
                    self._refuse(at, f"the range {raw[i]}-{raw[i + 2]} is empty")
                ranges.append((points[i], points[i + 2]))
                i += 3
            else:
                ranges.append((points[i], points[i]))
                i += 1
        if not ranges:
            self._refuse(at, "an empty character class matches nothing")
        return Class(tuple(ranges), negated)

    def _characters(self, text: str, at: int, letters: dict[str, str]) -> list[str]:
        found = []
        for match in _ESCAPE.finditer(text):
            code = match[1] or match[2] or match[3]
            if code is not None:
                point = int(code, 16)
                if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
                    self._refuse(at + match.start(), f"{match[0]} is no character")
                found.append(chr(point))
            elif match[4] is not None:
                if match[4] not in letters:
                    self._refuse(at + match.start(), f"the escape {match[0]} is not known")
                found.append(letters[match[4]])
            else:
                found.append(match[5])
        return found

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _refuse(self, at: int, message: str) -> NoReturn:
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        refuse(self._pointer, f"{message} (line {line} column {column} of the grammar)")

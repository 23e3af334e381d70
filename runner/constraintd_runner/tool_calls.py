"""Tool calls out of a finished answer: strict for what the daemon's tool grammars make.

The daemon knows the same wire formats as grammars; this is their reader. A call that is cut off or malformed is
reported as such, never passed on as text.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model writes calls; the daemon's WireFormat, field by field."""

    begin: str
    """Before each call, or before the whole list."""
    end: str = ""
    """After each call, or after the whole list."""
    name_key: str = "name"
    arguments_key: str = "arguments"
    separator: str = ""
    """Between two calls, with white space around it."""
    opening: str = ""
    """A regex that says at the very start of an answer that it is a call; for formats without begin."""
    in_list: bool = False
    """The calls are one JSON array."""
    type_first: bool = False
    """A call may have `"type": "function"` in front of its name."""
    id_last: bool = False
    """A call may have `"id"` after its arguments."""
    arguments_mark: str = ""
    """If given, a call is the bare name, this mark, and the arguments."""
    id_mark: str = ""
    """With arguments_mark: stands between the name and an id."""


HERMES: Final = CallFormat("<tool_call>", "</tool_call>")
LLAMA3_OPENINGS: Final = (
    '{"name":',
    '{ "name":',
    '{\n"name":',
    '{\n  "name":',
    '{\n    "name":',
    '{"type":"function"',
    '{"type": "function"',
    '{\n  "type": "function"',
    '{\n    "type": "function"',
)
"""The beginnings that wake the daemon's grammar of calls in text that is otherwise free."""
LLAMA3_JSON: Final = CallFormat(
    "",
    arguments_key="parameters",
    separator=";",
    opening=r'\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:',
    type_first=True,
)
MISTRAL: Final = CallFormat("[TOOL_CALLS]", in_list=True, id_last=True)
MISTRAL_ARGS: Final = CallFormat("[TOOL_CALLS]", arguments_mark="[ARGS]", id_mark="[CALL_ID]")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call."""

    id: str
    """From the text where the format has ids, otherwise made here; unique in the answer."""
    name: str
    arguments_json: str
    """The arguments as the model wrote them: a JSON object."""


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """Where a call stopped being one."""

    offset: int
    """Into the text, in characters."""
    expected: str
    text: str
    """From the beginning of the call, or of the group that it stands in, to the end of the answer."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """An answer taken apart."""

    content: str
    """Text outside of calls; without calls the whole text as it is, otherwise without white space at its ends."""
    calls: tuple[ToolCall, ...]
    malformed: MalformedCall | None
    """The first call that was cut off or malformed; nothing after its beginning is content or a call."""


def new_call_id() -> str:
    """An id in OpenAI's manner."""
    return f"call_{secrets.token_hex(12)}"


def parse_tool_calls(text: str, call_format: CallFormat, new_id: Callable[[], str] = new_call_id) -> ToolAnswer:
    """Content and calls of a finished answer. Special tokens stand in the text by their spelling. Raises nothing."""
    content: list[str] = []
    calls: list[ToolCall] = []
    at = 0
    while (begin := _next_call(text, at, call_format)) is not None:
        content.append(text[at:begin])
        reader = _Reader(text, begin, call_format, new_id)
        try:
            reader.read(calls)
        except _UnexpectedError as error:
            malformed = MalformedCall(reader.at, error.expected, text[reader.begin :])
            return ToolAnswer("".join(content).strip(), tuple(calls), malformed)
        at = reader.at
    content.append(text[at:])
    return ToolAnswer("".join(content).strip() if calls else text, tuple(calls), None)


def _next_call(text: str, at: int, call_format: CallFormat) -> int | None:
    if call_format.begin:
        found = text.find(call_format.begin, at)
        return found if found >= 0 else None
    return 0 if at == 0 and re.match(call_format.opening, text) else None


class _UnexpectedError(Exception):
    """The text is not what has to stand here."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected


class _Reader:
    """Reads calls from one place on; `at` is how far it came, `begin` where the last group of calls begins."""

    def __init__(self, text: str, at: int, call_format: CallFormat, new_id: Callable[[], str]) -> None:
        self._text = text
        self._format = call_format
        self._new_id = new_id
        self.at = at
        self.begin = at

    def read(self, calls: list[ToolCall]) -> None:
        """Appends one call, or all that stand together in a list or behind separators. Raises _UnexpectedError."""
        form = self._format
        while True:
            self.begin = self.at
            self._take(form.begin)
            if form.in_list:
                self._space()
                self._take("[")
            calls.append(self._one())
            if form.in_list:
                while self._follows(","):
                    calls.append(self._one())
                self._space()
                self._take("]")
            if form.end:
                self._space()
                self._take(form.end)
            if not self._another():
                break
        if not form.begin and self._text[self.at :].strip():
            raise _UnexpectedError(f"the end of the answer, or {form.separator!r} and another call")

    def _another(self) -> bool:
        """Takes a separator if a call stands behind it; otherwise it is text."""
        form, place = self._format, self.at
        if form.separator and self._follows(form.separator):
            self._space()
            if self._text.startswith(form.begin, self.at):
                return True
        self.at = place
        return False

    def _one(self) -> ToolCall:
        return self._bare() if self._format.arguments_mark else self._object()

    def _bare(self) -> ToolCall:
        form = self._format
        marks = [mark for mark in (form.arguments_mark, form.id_mark) if mark]
        ends = [found for mark in marks if (found := self._text.find(mark, self.at)) >= 0]
        if not ends or min(ends) == self.at:
            raise _UnexpectedError(f"a name and {form.arguments_mark!r}")
        name, self.at = self._text[self.at : min(ends)], min(ends)
        if re.search(r"\s", name):
            raise _UnexpectedError("a name without white space")
        call_id = ""
        if form.id_mark and self._text.startswith(form.id_mark, self.at):
            self._take(form.id_mark)
            call_id = self._matching(r"[A-Za-z0-9]{9}", "an id of nine letters or digits")
        self._take(form.arguments_mark)
        return ToolCall(call_id or self._new_id(), name, self._arguments())

    def _object(self) -> ToolCall:
        form = self._format
        self._space()
        self._take("{")
        self._space()
        if form.type_first and self._text.startswith('"type"', self.at):
            self._key("type")
            self._take('"function"')
            self._comma()
        self._key(form.name_key)
        name = self._value()
        if not isinstance(name, str) or not name:
            raise _UnexpectedError("a name")
        self._comma()
        self._key(form.arguments_key)
        arguments = self._arguments()
        call_id = ""
        if form.id_last and self._follows(","):
            self._space()
            self._key("id")
            call_id = self._matching(r'"[A-Za-z0-9]{9}"', "an id of nine letters or digits")[1:-1]
        self._space()
        self._take("}")
        return ToolCall(call_id or self._new_id(), name, arguments)

    def _arguments(self) -> str:
        begin = self.at
        if not isinstance(self._value(), dict):
            self.at = begin
            raise _UnexpectedError("arguments, as a JSON object")
        return self._text[begin : self.at]

    def _value(self) -> object:
        try:
            value, self.at = _JSON.raw_decode(self._text, self.at)
        except (ValueError, RecursionError):
            raise _UnexpectedError("a JSON value") from None
        return value

    def _key(self, key: str) -> None:
        self._take(json.dumps(key, ensure_ascii=False))
        self._space()
        self._take(":")
        self._space()

    def _comma(self) -> None:
        self._space()
        self._take(",")
        self._space()

    def _follows(self, mark: str) -> bool:
        """Takes white space and the mark, or nothing."""
        found = _SPACE.match(self._text, self.at)
        after = found.end() if found else self.at
        if not self._text.startswith(mark, after):
            return False
        self.at = after + len(mark)
        return True

    def _matching(self, regex: str, what: str) -> str:
        found = re.compile(regex).match(self._text, self.at)
        if found is None:
            raise _UnexpectedError(what)
        self.at = found.end()
        return found[0]

    def _space(self) -> None:
        found = _SPACE.match(self._text, self.at)
        self.at = found.end() if found else self.at

    def _take(self, mark: str) -> None:
        if not self._text.startswith(mark, self.at):
            raise _UnexpectedError(repr(mark))
        self.at += len(mark)


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_SPACE: Final = re.compile(r"[ \n\t\r]*")

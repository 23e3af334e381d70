"""How models write tool calls: the wire formats, and the languages of calls in them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence as Some
from dataclasses import asdict, dataclass
from typing import Final

from constraintd.grammar.structural_tag_format import (
    ConstString,
    Format,
    Json,
    JsonSchema,
    Or,
    Regex,
    Sequence,
    TagsWithSeparator,
)


@dataclass(frozen=True, slots=True)
class WireFormat:
    """One way to write calls. The named formats are below; any begin and end can be given."""

    begin: str
    """Before each call, or before the whole list; empty only if `openings` says how a call begins."""
    end: str = ""
    """After each call, or after the whole list."""
    name_key: str = "name"
    """The member that holds the function's name, always first."""
    arguments_key: str = "arguments"
    """The member that holds its arguments."""
    separator: str = ""
    """Between two calls, with white space around it."""
    openings: tuple[str, ...] = ()
    """Texts that begin a call where `begin` is empty; they count only at the very start of an answer."""
    in_list: bool = False
    """The calls are one JSON array."""
    type_first: bool = False
    """A call may have `"type": "function"` in front of its name."""
    id_last: bool = False
    """A call may have `"id"`, nine letters or digits, after its arguments."""
    arguments_mark: str = ""
    """If given, a call is not an object but the bare name, this mark, and the arguments."""
    id_mark: str = ""
    """With arguments_mark: the name may be followed by this and an id of nine letters or digits."""


HERMES: Final = WireFormat("<tool_call>", "</tool_call>")
"""Hermes 2 Pro, Qwen 2.5 and 3: `<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>`."""
LLAMA3_JSON: Final = WireFormat(
    "",
    arguments_key="parameters",
    separator=";",
    openings=(
        '{"name":',
        '{ "name":',
        '{\n"name":',
        '{\n  "name":',
        '{\n    "name":',
        '{"type":"function"',
        '{"type": "function"',
        '{\n  "type": "function"',
        '{\n    "type": "function"',
    ),
    type_first=True,
)
"""Llama 3.1 to 3.3: the answer is `{"name": ..., "parameters": {...}}`; several are separated by `;`."""
MISTRAL: Final = WireFormat("[TOOL_CALLS]", in_list=True, id_last=True)
"""Mistral 7B v0.3, Nemo: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`."""
MISTRAL_ARGS: Final = WireFormat("[TOOL_CALLS]", arguments_mark="[ARGS]", id_mark="[CALL_ID]")
"""Mistral Small 3.2, Devstral, Ministral 3: `[TOOL_CALLS]name[ARGS]{...}`, one after the other."""


def wire_text(wire: WireFormat, *, parallel: bool) -> str:
    """The wire format and whether calls may be several, as canonical JSON: a part of a grammar's source."""
    return json.dumps({**asdict(wire), "parallel": parallel}, ensure_ascii=False, separators=(",", ":"))


def wire_of(text: str) -> tuple[WireFormat, bool]:
    """What `wire_text` wrote."""
    members = json.loads(text)
    parallel = members.pop("parallel")
    return WireFormat(**{**members, "openings": tuple(members["openings"])}), parallel


# White space between JSON's parts is bounded, as everywhere in this server.
_SPACE: Final = r"[ \n\t\r]{0,64}"
_ID: Final = "[A-Za-z0-9]{9}"


@dataclass(frozen=True, slots=True)
class Function:
    """One function that may be called."""

    pointer: str
    """Where its parameters stand, as a JSON pointer without the first slash."""
    name: str
    parameters: Json
    """A JSON Schema of type object."""


def calls_format(functions: Some[Function], wire: WireFormat, *, several: bool) -> Format:
    """One call of any of the functions, or, if `several`, one or more."""
    call: Format = _bare_call(functions, wire) if wire.arguments_mark else _object_call(functions, wire)
    if wire.in_list:
        return _series(
            ConstString("", wire.begin),
            Regex("", rf"{_SPACE}\[{_SPACE}"),
            _repeat(call, f"{_SPACE},{_SPACE}", several=several),
            Regex("", rf"{_SPACE}\]"),
            *_closing(wire),
        )
    around = [Regex("", _SPACE)] if wire.begin and not wire.arguments_mark else []
    one = _series(ConstString("", wire.begin), *around, call, *_closing(wire))
    separator = f"{_SPACE}{re.escape(wire.separator)}{_SPACE}" if wire.separator else _SPACE
    return _repeat(one, separator, several=several)


def _object_call(functions: Some[Function], wire: WireFormat) -> Format:
    typed = rf'(?:"type"{_SPACE}:{_SPACE}"function"{_SPACE},{_SPACE})?' if wire.type_first else ""
    head = Regex("", rf"\{{{_SPACE}{typed}{_key(wire.name_key)}")
    arguments = Regex("", rf"{_SPACE},{_SPACE}{_key(wire.arguments_key)}")
    id_ = rf'(?:{_SPACE},{_SPACE}{_key("id")}"{_ID}")?' if wire.id_last else ""
    options = tuple(
        _series(ConstString("", json.dumps(f.name, ensure_ascii=False)), arguments, _arguments(f)) for f in functions
    )
    return _series(head, Or("", options), Regex("", rf"{id_}{_SPACE}\}}"))


def _bare_call(functions: Some[Function], wire: WireFormat) -> Format:
    mark: Format = ConstString("", wire.arguments_mark)
    if wire.id_mark:
        mark = Or("", (mark, _series(ConstString("", wire.id_mark), Regex("", _ID), mark)))
    return Or("", tuple(_series(ConstString("", f.name), mark, _arguments(f)) for f in functions))


def _arguments(function: Function) -> Format:
    return JsonSchema(f"/{function.pointer}", function.parameters, None)


def _closing(wire: WireFormat) -> list[Format]:
    return [Regex("", _SPACE), ConstString("", wire.end)] if wire.end else []


def _repeat(item: Format, separator: str, *, several: bool) -> Format:
    if not several:
        return item
    return TagsWithSeparator("", (item,), Regex("", separator), at_least_one=True, stop_after_first=False)


def _series(*parts: Format) -> Format:
    return Sequence("", tuple(part for part in parts if part != ConstString("", "")))


def _key(key: str) -> str:
    return rf"{re.escape(json.dumps(key, ensure_ascii=False))}{_SPACE}:{_SPACE}"

"""OpenAI-style tools and tool_choice as a constraint: what calls look like, and what wakes them.

- `auto`: free text, in which the wire format's marker begins a call; from there on it is a call by its schema.
- `required`: the answer is calls and nothing else. A named function: exactly one call of it.
- `none`: free text. Nothing is constrained, and nothing should be parsed; only a marker that is one special token is
  banned, since such a token has no other use.

`strict` is read and checked, and changes nothing: arguments always satisfy their schema here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from llguidance import LLMatcher

from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.errors import InvalidField, InvalidGrammar
from constraintd.grammar.json_schema.report import SchemaOptions
from constraintd.grammar.source import canonical_json
from constraintd.grammar.structural_tag import DEFAULT_OPTIONS, SpecialToken, format_lark
from constraintd.grammar.structural_tag_format import Json
from constraintd.grammar.tag_contents import schema_for_engine
from constraintd.grammar.tools_wire import Function, WireFormat, calls_format

_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_WORDS: Final = ("auto", "required", "none")


@dataclass(frozen=True, slots=True)
class Wake:
    """When the grammar of calls is awake."""

    constrained: bool
    """False for "none": there is no such grammar."""
    lazy: bool
    """True if the grammar sleeps until a trigger."""
    triggers: tuple[Trigger, ...]
    """Any of them wakes it; none unless lazy."""
    rearm: bool
    """True if it sleeps again once a call is over, so that more text and calls can follow."""
    banned_tokens: tuple[int, ...]
    """Token ids never to be sampled."""


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """What a request's tools mean for its constraint."""

    lark: str
    """The calls' grammar (start rule `start`), from the trigger on; empty if nothing is constrained."""
    wake: Wake


def plan_tools(
    tools: str,
    tool_choice: str,
    *,
    wire_format: WireFormat,
    parallel_tool_calls: bool = True,
    options: SchemaOptions = DEFAULT_OPTIONS,
    special_token: SpecialToken | None = None,
) -> ToolPlan:
    """The plan for these tools (a JSON list) and this choice (a word, or a JSON object that names a function).

    Under `auto`, calls in parallel come one by one, each with its trigger, or as one list where the format has lists.

    Raises InvalidField, its field a JSON pointer that begins with `tools` or `tool_choice`, for malformed tools, a name
    that stands twice or is not known, or a schema that can't be used.
    """
    functions = _functions(tools, options)
    choice, named = _choice(tool_choice, [function.name for function in functions])
    _check_wire(wire_format)
    wake = wake_of(tool_choice, wire_format, parallel_tool_calls=parallel_tool_calls, special_token=special_token)
    if choice == "none":
        return ToolPlan("", wake)
    if named is not None:
        functions = [function for function in functions if function.name == named]
    several = parallel_tool_calls and named is None and not _one_by_one(choice, wire_format)
    lark = format_lark(
        calls_format(functions, wire_format, several=several), options=options, special_token=special_token
    )
    return ToolPlan(lark, wake)


def wake_of(
    tool_choice: str,
    wire_format: WireFormat,
    *,
    parallel_tool_calls: bool = True,
    special_token: SpecialToken | None = None,
) -> Wake:
    """When the calls' grammar is awake; looks at the kind of choice alone. Raises InvalidField."""
    choice, _ = _choice(tool_choice, None)
    _check_wire(wire_format)
    marker = special_token(wire_format.begin) if special_token is not None and wire_format.begin else None
    if choice == "none":
        return Wake(False, False, (), False, () if marker is None else (marker,))
    if choice != "auto":
        return Wake(True, False, (), False, ())
    rearm = _one_by_one(choice, wire_format) and parallel_tool_calls
    return Wake(True, True, _triggers(wire_format, marker), rearm, ())


def _one_by_one(choice: str, wire: WireFormat) -> bool:
    """Whether the grammar is that of one call, woken anew for each."""
    return choice == "auto" and bool(wire.begin) and not wire.in_list


def _triggers(wire: WireFormat, marker: int | None) -> tuple[Trigger, ...]:
    if marker is not None:
        return (Trigger(TriggerKind.TOKEN, token=marker),)
    if wire.begin:
        return (Trigger(TriggerKind.WORD, wire.begin),)
    return tuple(Trigger(TriggerKind.WORD, text, at_start=True) for text in wire.openings)


def _check_wire(wire: WireFormat) -> None:
    if not wire.begin and not wire.openings:
        raise InvalidField("wire_format.begin", "is empty; name the text that begins a call")
    if wire.name_key == wire.arguments_key:
        raise InvalidField("wire_format.arguments_key", f"is {wire.name_key!r}, as name_key is; they differ")


def _functions(text: str, options: SchemaOptions) -> list[Function]:
    tools = _json("tools", text)
    if not isinstance(tools, list) or not tools:
        raise InvalidField("tools", "is a JSON list of at least one tool")
    functions: list[Function] = []
    seen: dict[str, int] = {}
    for i, tool in enumerate(tools):
        at = f"tools/{i}"
        if not isinstance(tool, dict) or tool.get("type") != "function":
            raise InvalidField(f"{at}/type", 'a tool is an object of type "function"')
        function = tool.get("function")
        if not isinstance(function, dict):
            raise InvalidField(f"{at}/function", "is an object with a name and parameters")
        name = function.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidField(f"{at}/function/name", "is 1 to 128 letters, digits, or any of _ . : / -")
        if name in seen:
            raise InvalidField(f"{at}/function/name", f"{name!r} is the name of tool {seen[name]} too")
        seen[name] = i
        if not isinstance(function.get("strict"), bool | None):
            raise InvalidField(f"{at}/function/strict", "is true or false")
        parameters = _parameters(function.get("parameters"), f"{at}/function/parameters")
        functions.append(Function(f"{at}/function/parameters", name, parameters))
    _check_schemas(functions, options)
    return functions


def _parameters(schema: Json, at: str) -> Json:
    """The schema of a function's arguments, which are an object; no schema is an empty list of parameters."""
    if schema is None:
        return {"type": "object", "additionalProperties": False}
    if not isinstance(schema, dict):
        raise InvalidField(at, "a function's parameters are a JSON Schema of type object")
    if schema.get("type", "object") != "object":
        raise InvalidField(f"{at}/type", 'arguments are an object: the type is "object"')
    return {"type": "object", **schema}


def _check_schemas(functions: list[Function], options: SchemaOptions) -> None:
    """Has the engine read all schemas, and, if it can't, one after the other to say which."""
    prepared = []
    for function in functions:
        try:
            prepared.append(f"%json {schema_for_engine(function.parameters, options)}")
        except InvalidGrammar as error:
            raise InvalidField(function.pointer + error.metadata["location"], error.message) from None
    if not LLMatcher.validate_grammar("start: " + " | ".join(prepared)):
        return
    for function, grammar in zip(functions, prepared, strict=True):
        problem = LLMatcher.validate_grammar(f"start: {grammar}")
        if problem:
            raise InvalidField(function.pointer, problem.strip().splitlines()[0][:300])


def _choice(text: str, names: list[str] | None) -> tuple[str, str | None]:
    """One of the words, or "named" and the name, which must be among `names` if they are given."""
    if text in _WORDS:
        return text, None
    choice = _json("tool_choice", text)
    if isinstance(choice, str) and choice in _WORDS:
        return choice, None
    if not isinstance(choice, dict) or choice.get("type") != "function":
        raise InvalidField("tool_choice", 'is "auto", "required", "none", or {"type": "function", "function": {...}}')
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise InvalidField("tool_choice/function/name", "names the function to call")
    if names is not None and name not in names:
        raise InvalidField("tool_choice/function/name", f"{name!r} is none of the tools: {', '.join(names)}")
    return "named", name


def _json(field: str, text: str) -> Json:
    try:
        value: Json = json.loads(canonical_json(text))
    except InvalidGrammar as error:
        raise InvalidField(field, error.message) from None
    return value

"""A request's chat as what templates are given: messages with their tool calls, and the tools.

The form is that of transformers' `apply_chat_template`: tools as OpenAI has them, and the arguments of earlier calls as
objects, where OpenAI has their text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd_runner.chat import ChatTurn, Json
from constraintd_runner.errors import InvalidRequest
from constraintd_runner.tool_answer import tools_of

_MAX_DEPTH: Final = 128
"""Levels of JSON; the daemon takes fewer in a schema."""


def turns_of(chat: pb.ChatPrompt) -> list[ChatTurn]:
    """The chat's messages. Raises InvalidRequest naming the field that can't be used."""
    if not chat.messages:
        raise InvalidRequest("the chat has no messages; send at least one", field="chat.messages")
    return [_turn_of(message, f"chat.messages[{index}]") for index, message in enumerate(chat.messages)]


def chat_tools(request: pb.GenerateRequest) -> list[Json]:
    """The tools that the template is given: the chat's own, or else the constraint's; empty for none.

    Raises InvalidRequest naming the field that can't be used.
    """
    if request.chat.HasField("tools"):
        return _objects(request.chat.tools, "chat.tools")
    calls = tools_of(request.constraint)
    return [] if calls is None else _objects(calls.tools, "constraint.tool_calls.tools")


def utf8_text(text: bytes, field: str) -> str:
    """The text of a field. Raises InvalidRequest if it isn't UTF-8."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"byte {error.start} is not UTF-8", field=field) from error


def _turn_of(message: pb.ChatMessage, field: str) -> ChatTurn:
    return ChatTurn(
        utf8_text(message.role, f"{field}.role"),
        utf8_text(message.content, f"{field}.content"),
        tuple(_calls_of(message.tool_calls, f"{field}.tool_calls")) if message.tool_calls else (),
        tool_call_id=utf8_text(message.tool_call_id, f"{field}.tool_call_id"),
        name=utf8_text(message.name, f"{field}.name"),
    )


def _calls_of(text: bytes, field: str) -> Iterable[Json]:
    for index, call in enumerate(_objects(text, field)):
        at = f"{field}[{index}].function"
        function = call.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidRequest("a call is an object whose function is an object with a name and arguments", field=at)
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            # An empty text is how some servers spell a call without arguments.
            arguments = _json(arguments or "{}", f"{at}.arguments")
        if not isinstance(arguments, dict | None):
            raise InvalidRequest("arguments are a JSON object, or its text", field=f"{at}.arguments")
        yield {**call, "function": {**function, "arguments": arguments or {}}}


def _objects(text: bytes, field: str) -> list[Json]:
    value = _json(utf8_text(text, field), field)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidRequest("this is a JSON list of objects", field=field)
    return value


def _json(text: str, field: str) -> Json:
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair, written as an escape, is no text
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise InvalidRequest(f"not JSON: {error.msg} at {place}", field=field) from None
    except UnicodeEncodeError:
        raise InvalidRequest("not usable JSON: an escape is half a character; write both halves", field=field) from None
    except (ValueError, RecursionError) as error:  # a number that no double or Python integer holds; depth
        raise InvalidRequest(f"not usable JSON: {error}", field=field) from None
    if _deeper_than(value, _MAX_DEPTH):
        raise InvalidRequest(f"the JSON is nested deeper than {_MAX_DEPTH} levels", field=field)
    return value


def _deeper_than(value: Json, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return any(isinstance(item, dict | list) for item in level)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if abs(value) == float("inf"):
        raise ValueError(f"{text} is past the range of a double")
    return value

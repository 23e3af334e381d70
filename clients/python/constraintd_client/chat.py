"""Chats as prompts: messages, the calls that they made, and the tools that the model is told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from constraintd.runner.v1 import generation_service_pb2

from .json_document import document_bytes, utf8
from .tools import ToolCall

ChatMessage: TypeAlias = Mapping[str, Any]
"""One message, such as {"role": "user", "content": "Hello"}; members as OpenAI has them:

- `role`, always; `content`, a text, may be missing or None where the message is calls alone;
- `tool_calls`, of an assistant's message: a list of `ToolCall`, as `ToolAnswer.calls` has them, or of OpenAI's
  {"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}, or its JSON text;
- `tool_call_id` and `name`, of a message of the role "tool": which call it answers, and of which function.
"""

Prompt: TypeAlias = str | bytes | Sequence[ChatMessage] | Sequence[int]
"""Text, chat messages, or token ids."""

Tools: TypeAlias = Sequence[Mapping[str, Any]] | str | bytes
"""OpenAI-style tools: a list of {"type": "function", "function": {...}}, or its JSON text."""

_MEMBERS = ("role", "content", "tool_calls", "tool_call_id", "name")


def chat_prompt(messages: Sequence[ChatMessage], tools: Tools | None) -> generation_service_pb2.ChatPrompt:
    """The messages and, unless None, the tools. Raises TypeError for a message without a role, or with a member that
    is none of a message's or not of its type; TypeError or ValueError for values that JSON can't hold.
    """
    return generation_service_pb2.ChatPrompt(
        messages=[_message(message, index) for index, message in enumerate(messages)],
        tools=None if tools is None else document_bytes(tools),
    )


def _message(message: ChatMessage, index: int) -> generation_service_pb2.ChatMessage:
    # A member that is None is one left out, as in what OpenAI's client dumps.
    members = {name: value for name, value in message.items() if value is not None}
    unknown = sorted(members.keys() - set(_MEMBERS))
    if unknown:
        raise TypeError(f"message {index} has {unknown[0]!r}, which is none of {', '.join(_MEMBERS)}")
    if "role" not in members:
        raise TypeError(f"message {index} has no role")
    calls = members.pop("tool_calls", ())
    for name, value in members.items():
        if not isinstance(value, str | bytes):
            raise TypeError(f"the {name} of message {index} is a text, not {type(value).__name__}")
    texts = {name: utf8(value) for name, value in members.items()}
    return generation_service_pb2.ChatMessage(tool_calls=_calls_bytes(calls), **texts)


def _calls_bytes(calls: Sequence[ToolCall | Mapping[str, Any]] | str | bytes) -> bytes:
    if isinstance(calls, str | bytes) or not calls:
        return utf8(calls) if isinstance(calls, str | bytes) else b""
    return document_bytes([_openai_form(call) if isinstance(call, ToolCall) else call for call in calls])


def _openai_form(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

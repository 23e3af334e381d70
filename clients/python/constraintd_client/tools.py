"""OpenAI-style tools: the constraint that calls of them satisfy, and the calls that came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from constraintd.runner.v1 import generation_service_pb2
from constraintd.v1 import session_pb2

from .json_document import document_bytes, utf8
from .json_options import JsonWhitespace, SchemaPolicy, json_options

ToolFormat: TypeAlias = Literal["hermes", "llama3_json", "mistral", "mistral_args"]
"""Wire formats that have a name: Hermes and Qwen, Llama 3, Mistral 7B v0.3 and Nemo, Mistral Small 3.2 and later."""

_WORDS = ("auto", "required", "none")


class CallTemplate(NamedTuple):
    """A wire format of one's own: a JSON object between two markers. A plain tuple of the first ones does as well."""

    begin: str | bytes
    """Before each call. A marker that is exactly one special token is that token."""
    end: str | bytes = ""
    """After each call."""
    name_key: str | bytes = ""
    """Member of the function's name; "name" if empty."""
    arguments_key: str | bytes = ""
    """Member of its arguments; "arguments" if empty."""
    separator: str | bytes = ""
    """Between two calls."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool."""

    id: str
    """Unique in the answer."""
    name: str
    """The function's."""
    arguments: str
    """A JSON object, as the model wrote it."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """An answer taken apart."""

    content: str
    """Text outside of calls; special tokens stand in it by their spelling."""
    calls: tuple[ToolCall, ...]
    """In the order in which they were written."""
    malformed: str
    """A call that was cut off, from its beginning on; empty if all are whole."""


def tool_calls(
    tools: Sequence[Mapping[str, Any]] | str | bytes,
    *,
    choice: str | Mapping[str, Any] = "auto",
    format: ToolFormat | None = None,  # noqa: A002 - the protocol's word
    template: CallTemplate | tuple[str | bytes, ...] | None = None,
    single: bool = False,
    policy: SchemaPolicy = "strict",
    whitespace: JsonWhitespace = "bounded",
    formats_are_annotations: bool = False,
) -> session_pb2.Constraint:
    """Calls of OpenAI-style `tools`: a list of {"type": "function", "function": {...}}, or its JSON text.

    `choice` is "auto" (free text that may have calls), "required" (calls alone), "none", the name of the one function
    to call, or OpenAI's {"type": "function", "function": {"name": ...}}. `format` or `template` says how the model
    writes calls. `single`: at most one call. The other options are those of `json_schema`, for the arguments.

    Raises TypeError if both or neither of `format` and `template` are given, or for a template that is too long;
    ValueError for an unknown name.
    """
    if (format is None) == (template is None):
        raise TypeError("tool_calls takes either a format or a template: say how the model writes calls")
    calls = session_pb2.ToolCalls(
        tools=document_bytes(tools),
        tool_choice=_choice_bytes(choice),
        single=single,
        json_options=json_options(policy, whitespace, formats_are_annotations),
    )
    if template is not None:
        members = CallTemplate(*template)._asdict()
        calls.template.CopyFrom(session_pb2.ToolCallTemplate(**{name: utf8(text) for name, text in members.items()}))
    elif format is not None:
        calls.format = session_pb2.ToolCallFormat.Value(f"TOOL_CALL_FORMAT_{format.upper()}")
    return session_pb2.Constraint(tool_calls=calls)


def tool_answer_of(message: generation_service_pb2.ToolAnswer) -> ToolAnswer:
    """Translates a ToolAnswer."""
    calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in message.calls)
    return ToolAnswer(message.content, calls, message.malformed)


def _choice_bytes(choice: str | Mapping[str, Any]) -> bytes:
    if isinstance(choice, str) and choice not in _WORDS and not choice.lstrip().startswith("{"):
        choice = {"type": "function", "function": {"name": choice}}
    return document_bytes(choice)

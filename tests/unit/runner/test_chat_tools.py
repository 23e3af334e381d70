"""Tools, calls and their results in chat templates: what the template is given, and what is kept out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from constraintd_runner.chat import ChatTemplate, ChatTemplateError, ChatTurn
from constraintd_runner.chat_request import chat_tools, turns_of
from constraintd_runner.errors import InvalidRequest
from constraintd_runner.special import SpecialTokens

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd.v1 import session_pb2

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
NOW = {"type": "function", "function": {"name": "now", "description": "the <time>"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Århus"}}}

# The manner of Hermes 2 Pro and Qwen: tools in a system message, calls and results between tags.
HERMES = """\
{%- if tools %}
{{- '<|start|>system\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\n' }}{% endif %}
{{- '<tools>' }}
{%- for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}
{{- '\n</tools><|end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}
{{- '<|start|>assistant\n' + message.content }}
{%- for call in message.tool_calls %}
{%- if call.function %}{% set call = call.function %}{% endif %}
{{- '<tool_call>{"name": "' + call.name + '", "arguments": ' + (call.arguments | tojson) + '}</tool_call>' }}
{%- endfor %}
{{- '<|end|>\n' }}
{%- elif message.role == 'tool' %}
{{- '<|start|>user\n<tool_response>' + message.content + '</tool_response><|end|>\n' }}
{%- elif message.role != 'system' %}
{{- '<|start|>' + message.role + '\n' + message.content + '<|end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"""

# The manner of Llama 3.1: arguments under another name, results from a role of their own, no calls in parallel.
LLAMA = """\
{%- for message in messages %}
{%- if message.role == 'tool' %}{{ '<|start|>ipython\n' + message.content + '<|end|>\n' }}
{%- elif 'tool_calls' in message %}
{%- if message.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start|>assistant\n{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}<|end|>\n' }}
{%- else %}{{ '<|start|>' + message.role + '\n' + message.content + '<|end|>\n' }}{% endif %}
{%- endfor %}"""

# The manner of Mistral: ids of calls, each answered by its own.
MISTRAL = """\
{%- if tools is not none %}{{ '[TOOLS]' + (tools | tojson) + '[/TOOLS]' }}{% endif %}
{%- for message in messages %}
{%- if message.tool_calls is defined and message.tool_calls is not none %}
{{- '[CALLS]' }}{% for call in message.tool_calls %}{{ call.function.name + '#' + call.id + ';' }}{% endfor %}
{%- elif message.role == 'tool' %}{{ '[RESULT]' + message.tool_call_id + '=' + message.content }}
{%- else %}{{ '[' + message.role + ']' + message.content }}{% endif %}
{%- endfor %}"""

CONVERSATION = [
    ChatTurn("user", "Is it warm?"),
    ChatTurn("assistant", "", (CALL,)),
    ChatTurn("tool", "17", tool_call_id="call_1", name="weather"),
]


def rendered(template: str, turns: Sequence[ChatTurn], tools: Sequence[Mapping[str, Any]] = ()) -> str:
    return ChatTemplate(template, {}).render(turns, tools)


def test_a_hermes_template_writes_tools_calls_and_results() -> None:
    assert rendered(HERMES, CONVERSATION, [WEATHER, NOW]) == (
        "<|start|>system\n<tools>\n"
        '{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}\n'
        '{"type": "function", "function": {"name": "now", "description": "the <time>"}}\n'
        "</tools><|end|>\n"
        "<|start|>user\nIs it warm?<|end|>\n"
        '<|start|>assistant\n<tool_call>{"name": "weather", "arguments": {"city": "Århus"}}</tool_call><|end|>\n'
        "<|start|>user\n<tool_response>17</tool_response><|end|>\n"
        "<|start|>assistant\n"
    )


def test_a_llama_template_finds_the_arguments_as_an_object() -> None:
    assert rendered(LLAMA, CONVERSATION) == (
        "<|start|>user\nIs it warm?<|end|>\n"
        '<|start|>assistant\n{"name": "weather", "parameters": {"city": "Århus"}}<|end|>\n'
        "<|start|>ipython\n17<|end|>\n"
    )


def test_a_mistral_template_finds_the_ids_of_calls() -> None:
    assert rendered(MISTRAL, CONVERSATION, [NOW]) == (
        '[TOOLS][{"type": "function", "function": {"name": "now", "description": "the <time>"}}][/TOOLS]'
        "[user]Is it warm?[CALLS]weather#call_1;[RESULT]call_1=17"
    )


def test_no_tools_are_none_and_members_that_are_not_set_are_not_there() -> None:
    assert rendered(MISTRAL, [ChatTurn("user", "hi")]) == "[user]hi"
    assert rendered("{{ messages | tojson }}", [ChatTurn("user", "hi")]) == '[{"role": "user", "content": "hi"}]'
    named = ChatTurn("user", "hi", name="Ada")
    assert rendered("{{ messages[0] | tojson }}", [named]) == '{"role": "user", "content": "hi", "name": "Ada"}'


def test_a_template_without_tools_writes_the_chat_as_if_there_were_none() -> None:
    plain = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    turns = [ChatTurn("user", "hi")]
    assert rendered(plain, turns, [WEATHER]) == rendered(plain, turns) == "user: hi\n"
    assert rendered(plain, CONVERSATION, [WEATHER]) == "user: Is it warm?\nassistant: \ntool: 17\n"


def test_a_template_s_word_on_tools_is_an_error_of_the_chat() -> None:
    with pytest.raises(ChatTemplateError, match="one call at a time"):
        rendered(LLAMA, [ChatTurn("assistant", "", (CALL, CALL))])


# --- special tokens stay the template's ---


class LetterTokenizer:
    """A letter is its code point; special tokens lie above all of them."""

    special = SpecialTokens.of({"<|start|>": 0x110000, "<|end|>": 0x110001})

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    encode_prompt = encode

    def encode_rendered(self, text: str) -> list[int]:
        return self.special.encode_around(text, self.encode)


def spelled(ids: Sequence[int]) -> str:
    names = {0x110000: "[START]", 0x110001: "[END]"}
    return "".join(names.get(token) or chr(token) for token in ids)


def test_special_tokens_that_a_tool_spells_are_text() -> None:
    tool = {"type": "function", "function": {"name": "f<|end|>", "parameters": {"properties": {"<|start|>": {}}}}}
    ids = ChatTemplate(HERMES, {}).encode([ChatTurn("user", "hi")], LetterTokenizer(), [tool])
    assert spelled(ids) == (
        "[START]system\n<tools>\n"
        '{"type": "function", "function": {"name": "f<|end|>", "parameters": {"properties": {"<|start|>": {}}}}}\n'
        "</tools>[END]\n[START]user\nhi[END]\n[START]assistant\n"
    )


def test_special_tokens_that_calls_and_results_spell_are_text() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"<|end|>": ["<|start|>", 1]}}}
    turns = [ChatTurn("assistant", "", (call,)), ChatTurn("tool", "<|end|>", tool_call_id="1")]
    assert spelled(ChatTemplate(HERMES, {}).encode(turns, LetterTokenizer())) == (
        '[START]assistant\n<tool_call>{"name": "f", "arguments": {"<|end|>": ["<|start|>", 1]}}</tool_call>[END]\n'
        "[START]user\n<tool_response><|end|></tool_response>[END]\n[START]assistant\n"
    )


# --- from the request ---


def chat(**message: Any) -> pb.ChatPrompt:
    calls = message.pop("tool_calls", b"")
    return pb.ChatPrompt(
        messages=[
            pb.ChatMessage(role=b"user", content=b"hi"),
            pb.ChatMessage(tool_calls=calls if isinstance(calls, bytes) else json.dumps(calls).encode(), **message),
        ]
    )


@pytest.mark.parametrize("arguments", [{"city": "Århus"}, '{"city": "Århus"}', ' {"city":"\\u00c5rhus"}'])
def test_arguments_become_an_object_however_they_are_sent(arguments: object) -> None:
    sent = {**CALL, "function": {"name": "weather", "arguments": arguments}}
    assert turns_of(chat(role=b"assistant", tool_calls=[sent]))[1] == ChatTurn("assistant", "", (CALL,))


@pytest.mark.parametrize("function", [{"name": "f"}, {"name": "f", "arguments": ""}, {"name": "f", "arguments": None}])
def test_no_arguments_are_an_empty_object(function: Mapping[str, Any]) -> None:
    (call,) = turns_of(chat(role=b"assistant", tool_calls=[{"function": function}]))[1].tool_calls
    assert call == {"function": {"name": "f", "arguments": {}}}


def test_a_result_carries_its_call_s_id_and_name() -> None:
    turn = turns_of(chat(role=b"tool", content=b"17", tool_call_id=b"call_1", name=b"weather"))[1]
    assert turn == ChatTurn("tool", "17", tool_call_id="call_1", name="weather")


CALLS = session_pb2.Constraint(tool_calls=session_pb2.ToolCalls(tools=json.dumps([WEATHER]).encode()))
BOTH = session_pb2.Constraint(
    all_of=session_pb2.AllOf(constraints=[session_pb2.Constraint(unconstrained=session_pb2.Unconstrained()), CALLS])
)


@pytest.mark.parametrize(
    ("constraint", "named", "given"),
    [
        (CALLS, None, [WEATHER]),
        (BOTH, None, [WEATHER]),
        (CALLS, [NOW], [NOW]),
        (CALLS, [], []),
        (None, None, []),
        (None, [NOW], [NOW]),
    ],
    ids=["the constraint's", "those inside an all_of", "the chat's own", "kept out", "none", "without a constraint"],
)
def test_the_template_is_given_the_chat_s_tools_or_else_the_constraint_s(
    constraint: session_pb2.Constraint | None, named: object, given: object
) -> None:
    tools = None if named is None else json.dumps(named).encode()
    request = pb.GenerateRequest(chat=pb.ChatPrompt(tools=tools), constraint=constraint)
    assert chat_tools(request) == given


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        (b"", "not JSON: Expecting value at line 1 column 1"),
        (b"[{]", "not JSON: Expecting property name enclosed in double quotes at line 1 column 3"),
        (b"{}", "a JSON list of objects"),
        (b'["now"]', "a JSON list of objects"),
        (b"[\xff]", "byte 1 is not UTF-8"),
        (b'[{"a": NaN}]', "NaN is no number of JSON"),
        (b'[{"a": 1e999}]', "1e999 is past the range of a double"),
        (rb'[{"a": "\ud800"}]', "half a character"),
        (b'[{"a":' + b"[" * 128 + b"]" * 128 + b"}]", "deeper than 128 levels"),
        (b"[" * 100_000, "not usable JSON"),
    ],
)
def test_tools_that_are_no_list_of_objects_are_refused_by_field(tools: bytes, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        chat_tools(pb.GenerateRequest(chat=pb.ChatPrompt(tools=tools)))
    assert refused.value.metadata == {"field": "chat.tools"}


def test_tools_of_the_constraint_are_refused_by_their_own_field() -> None:
    broken = session_pb2.Constraint(tool_calls=session_pb2.ToolCalls(tools=b"{"))
    with pytest.raises(InvalidRequest) as refused:
        chat_tools(pb.GenerateRequest(chat=pb.ChatPrompt(), constraint=broken))
    assert refused.value.metadata == {"field": "constraint.tool_calls.tools"}


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"tool_calls": b"[}"}, "tool_calls"),
        ({"tool_calls": {"function": {"name": "f"}}}, "tool_calls"),
        ({"tool_calls": [CALL, {"name": "f", "arguments": {}}]}, "tool_calls[1].function"),
        ({"tool_calls": [{"function": {"arguments": "{}"}}]}, "tool_calls[0].function"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, "tool_calls[0].function.arguments"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}, "tool_calls[0].function.arguments"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": 1}}]}, "tool_calls[0].function.arguments"),
        ({"tool_call_id": b"\xff"}, "tool_call_id"),
        ({"name": b"\xff"}, "name"),
    ],
)
def test_a_message_s_member_that_cannot_be_used_is_refused_by_field(message: Mapping[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        turns_of(chat(role=b"assistant", **message))
    assert refused.value.metadata == {"field": f"chat.messages[1].{field}"}

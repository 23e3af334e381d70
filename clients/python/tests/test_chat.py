"""Chats as prompts: messages with calls and results, and the tools that go with them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from constraintd_client import ToolCall, tool_calls
from constraintd_client.generation_events import generate_request

from constraintd.runner.v1 import generation_service_pb2 as pb

TOOLS = [{"type": "function", "function": {"name": "weather"}}]
USER = {"role": "user", "content": "Is it warm?"}


def chat(*messages: Any, tools: Any = None) -> pb.ChatPrompt:
    return generate_request(messages, None, None, tools=tools).chat


def test_a_conversation_with_calls_and_results_goes_to_the_runner() -> None:
    call = ToolCall("call_1", "weather", '{"city": "Århus"}')
    answer = {"role": "assistant", "content": None, "tool_calls": (call,)}
    result = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": "17"}
    sent = chat(USER, answer, result).messages
    assert sent[0] == pb.ChatMessage(role=b"user", content=b"Is it warm?")
    assert (sent[1].role, sent[1].content) == (b"assistant", b"")
    assert json.loads(sent[1].tool_calls) == [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Århus"}'}}
    ]
    assert sent[2] == pb.ChatMessage(role=b"tool", content=b"17", tool_call_id=b"call_1", name=b"weather")


def test_calls_in_openai_s_form_and_as_json_go_as_they_are() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for calls in ([call], json.dumps([call], separators=(",", ":"))):
        sent = chat(USER, {"role": "assistant", "tool_calls": calls}).messages[1]
        assert sent.tool_calls == b'[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]'
    assert chat(USER, {"role": "assistant", "content": "No.", "tool_calls": []}).messages[1].tool_calls == b""


def test_tools_stand_beside_the_messages_only_where_they_are_named() -> None:
    assert not chat(USER).HasField("tools")
    assert chat(USER, tools=TOOLS).tools == b'[{"type":"function","function":{"name":"weather"}}]'
    assert chat(USER, tools=[]).tools == b"[]"
    # The constraint's own are the runner's to find.
    request = generate_request([USER], tool_calls(TOOLS, format="hermes"), None)
    assert not request.chat.HasField("tools")


@pytest.mark.parametrize("prompt", ["Is it warm?", [1, 2], []])
def test_tools_without_a_chat_are_a_mistake(prompt: Any) -> None:
    with pytest.raises(TypeError, match="list of messages"):
        generate_request(prompt, None, None, tools=TOOLS)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"content": "hi"}, "message 1 has no role"),
        ({"role": "user", "contents": "hi"}, "message 1 has 'contents'"),
        ({"role": "user", "content": [{"type": "text"}]}, "the content of message 1 is a text, not list"),
    ],
)
def test_a_message_that_would_not_arrive_whole_is_refused(message: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        chat(USER, message)
    assert chat(USER, {"role": "user", "content": "hi", "refusal": None}).messages[1].content == b"hi"

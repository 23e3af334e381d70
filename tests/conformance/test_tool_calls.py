"""Tool calls in every wire format: what the grammar takes, what the runner reads, and that both agree."""

import json
from pathlib import Path

import pytest
from constraintd_runner import tool_calls

from constraintd.grammar import tools_wire
from constraintd.grammar.tools import plan_tools
from tests.unit.structural_tag.walk import accepts, lark

DATA = json.loads(Path(__file__).with_name("tool_calls.json").read_text())
INTEGER = {"type": "integer"}
FUNCTIONS = {
    "special_function": {"type": "object", "properties": {"arg1": INTEGER}, "required": ["arg1"]},
    "special_function_with_opt": {
        "type": "object",
        "properties": {"arg1": INTEGER, "arg2": INTEGER},
        "required": ["arg1"],
    },
    "python": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
    "empty_args": None,
}
TOOLS = json.dumps(
    [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in FUNCTIONS.items()]
)
GRAMMAR_SIDE = {
    "HERMES": tools_wire.HERMES,
    "LLAMA3_JSON": tools_wire.LLAMA3_JSON,
    "MISTRAL": tools_wire.MISTRAL,
    "MISTRAL_ARGS": tools_wire.MISTRAL_ARGS,
    "GENERIC": tools_wire.WireFormat("<|call|>", "<|done|>", "fn", "args", separator="|"),
}
RUNNER_SIDE = {
    "HERMES": tool_calls.HERMES,
    "LLAMA3_JSON": tool_calls.LLAMA3_JSON,
    "MISTRAL": tool_calls.MISTRAL,
    "MISTRAL_ARGS": tool_calls.MISTRAL_ARGS,
    "GENERIC": tool_calls.CallFormat("<|call|>", "<|done|>", "fn", "args", separator="|"),
}


@pytest.mark.parametrize("wire", GRAMMAR_SIDE)
def test_the_grammar_of_required_calls_takes_calls_and_nothing_else(wire):
    cases = DATA["accepted"][wire]
    assert len(cases) >= 20
    grammar = lark(plan_tools(TOOLS, "required", wire_format=GRAMMAR_SIDE[wire]).lark)
    assert [case["text"] for case in cases if accepts(grammar, case["text"]) != case["ok"]] == []


@pytest.mark.parametrize("wire", GRAMMAR_SIDE)
def test_the_runner_reads_all_that_the_grammar_takes(wire):
    for case in DATA["accepted"][wire]:
        if not case["ok"]:
            continue
        answer = tool_calls.parse_tool_calls(case["text"], RUNNER_SIDE[wire])
        assert answer.malformed is None, case["text"]
        assert answer.content == ""
        assert {call.name for call in answer.calls} <= FUNCTIONS.keys()
        assert all(isinstance(json.loads(call.arguments_json), dict) for call in answer.calls)


@pytest.mark.parametrize("wire", GRAMMAR_SIDE)
def test_the_runner_takes_answers_apart(wire):
    for case in DATA["parsed"][wire]:
        answer = tool_calls.parse_tool_calls(case["text"], RUNNER_SIDE[wire], new_id=lambda: "new")
        expected = tuple(
            tool_calls.ToolCall(rest[0] if rest else "new", name, arguments) for name, arguments, *rest in case["calls"]
        )
        assert (answer.content, answer.calls) == (case["content"], expected), case["text"]
        assert (answer.malformed.expected if answer.malformed else None) == case.get("malformed"), case["text"]

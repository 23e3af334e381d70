"""Requests with tools: which calls are read out of their answers, and which texts are none."""

from __future__ import annotations

from constraintd_client import (
    Constraint,
    Finish,
    ReasoningEnd,
    TokenTable,
    VocabularyInfo,
    all_of,
    reasoning_end,
    regex,
    token_length,
    tool_calls,
)
from constraintd_runner.special import SpecialTokens
from constraintd_runner.tool_answer import answer_reader
from constraintd_runner.tool_calls import LLAMA3_OPENINGS

from constraintd.grammar import tools_wire
from constraintd.runner.v1 import generation_service_pb2 as pb

TOOL, END, THINK = 256, 257, 258
TABLE = TokenTable(
    VocabularyInfo("v", 259, 259, (0,), None, False),
    (*(bytes([value]) for value in range(256)), b"", b"", b""),
    {TOOL: "<|tool|>", END: "<|end|>", THINK: "</think>"},
)
SPECIAL = SpecialTokens.of({"<|tool|>": TOOL, "<|end|>": END, "</think>": THINK})
HERMES = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def read(
    constraint: Constraint,
    *parts: str | int,
    reasoning: ReasoningEnd | None = None,
    prompt: str = "",
    finish: Finish | None = None,
) -> pb.ToolAnswer:
    """The answer to what these texts and special tokens spell."""
    tokens = [token for part in parts for token in ([part] if isinstance(part, int) else part.encode())]
    reader = answer_reader(constraint, reasoning, [*prompt.encode()], TABLE, SPECIAL)
    assert reader is not None
    size = sum(len(TABLE.tokens[token]) for token in tokens)
    return reader.read(tokens, finish or Finish("LENGTH", b"", None, size, False))


def calls_of(answer: pb.ToolAnswer) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in answer.calls]


def test_a_constraint_without_tools_has_no_answer_to_take_apart() -> None:
    for constraint in (Constraint(), all_of(regex("a"), token_length(max=3))):
        assert answer_reader(constraint, None, [], TABLE, SPECIAL) is None


def test_named_formats_are_read_as_the_daemon_writes_them() -> None:
    cases = {
        "hermes": HERMES,
        "llama3_json": '{"name": "f", "parameters": {"a": 1}}',
        "mistral": '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]',
        "mistral_args": '[TOOL_CALLS]f[ARGS]{"a": 1}',
    }
    for format_, text in cases.items():
        for choice in ("auto", "required", "f"):
            answer = read(tool_calls([], choice=choice, format=format_), text)  # type: ignore[arg-type]
            assert (answer.content, calls_of(answer), answer.malformed) == ("", [("f", '{"a": 1}')], ""), format_


def test_tools_inside_all_of_count() -> None:
    constraint = all_of(token_length(max=9), tool_calls([], format="hermes"))
    assert calls_of(read(constraint, "Look: ", HERMES)) == [("f", '{"a": 1}')]


def test_every_call_has_an_id_of_its_own() -> None:
    answer = read(tool_calls([], format="hermes"), HERMES, HERMES)
    assert len({call.id for call in answer.calls}) == 2
    assert all(call.id for call in answer.calls)


def test_a_template_s_special_tokens_are_the_tokens_and_not_their_spelling() -> None:
    constraint = tool_calls([], template=("<|tool|>", "<|end|>", "fn", "args"))
    call = '{"fn": "f", "args": {"a": "<|end|>"}}'
    answer = read(constraint, "so ", TOOL, call, END, " and ", TOOL, call, END)
    assert (answer.content, calls_of(answer)) == ("so  and", [("f", '{"a": "<|end|>"}')] * 2)
    # Text that only spells the marker woke no grammar: its "arguments" never met the tool's schema.
    answer = read(constraint, "so <|tool|>" + call + "<|end|>")
    assert (answer.content, calls_of(answer)) == ("so <|tool|>" + call + "<|end|>", [])


def test_special_tokens_outside_of_calls_stand_by_their_spelling() -> None:
    answer = read(tool_calls([], format="hermes"), "a", END, "b")
    assert (answer.content, answer.malformed) == ("a<|end|>b", "")


def test_a_call_that_was_cut_off_is_malformed_and_never_text() -> None:
    template = tool_calls([], template=("<|tool|>", "<|end|>"))
    answer = read(template, "so ", TOOL, '{"name": "f", "argu')
    assert (answer.content, calls_of(answer), answer.malformed) == ("so", [], '<|tool|>{"name": "f", "argu')


def test_a_call_that_lacks_its_end_marker_alone_is_read_and_said_to_be_cut_off() -> None:
    answer = read(tool_calls([], template=("<|tool|>", "<|end|>")), TOOL, '{"name": "f", "arguments": {}}')
    assert calls_of(answer) == [("f", "{}")]
    assert (answer.content, answer.malformed) == ("", '<|tool|>{"name": "f", "arguments": {}}')


def test_where_an_answer_is_calls_alone_the_beginning_of_one_is_malformed_too() -> None:
    required = tool_calls([], choice="required", format="hermes")
    assert read(required, "<tool_c").malformed == "<tool_c"
    answer = read(required, HERMES, "\n<tool")
    assert (calls_of(answer), answer.content, answer.malformed) == ([("f", '{"a": 1}')], "", "<tool")
    assert read(tool_calls([], choice="f", format="llama3_json"), '{"na').malformed == '{"na'
    assert read(tool_calls([], format="hermes"), "<tool_c").content == "<tool_c"


def test_a_choice_of_none_is_text_whatever_it_looks_like() -> None:
    for choice in ("none", '"none"'):
        constraint = tool_calls([], format="hermes")
        constraint.tool_calls.tool_choice = choice.encode()
        answer = read(constraint, HERMES)
        assert (answer.content, calls_of(answer), answer.malformed) == (HERMES, [], "")


def test_in_free_text_only_what_wakes_the_daemon_begins_a_call() -> None:
    assert LLAMA3_OPENINGS == tools_wire.LLAMA3_JSON.openings
    unusual = '{   "name": "f", "parameters": {"a": "anything"}}'
    assert calls_of(read(tool_calls([], format="llama3_json"), unusual)) == []
    assert len(calls_of(read(tool_calls([], choice="required", format="llama3_json"), unusual))) == 1
    mixed = tool_calls([], template=("<|tool|>:",))
    assert calls_of(read(mixed, TOOL, ': {"name": "f", "arguments": {}}')) == []
    required = tool_calls([], choice="required", template=("<|tool|>:",))
    assert calls_of(read(required, TOOL, ': {"name": "f", "arguments": {}}')) == [("f", "{}")]


def test_calls_are_looked_for_behind_the_reasoning_and_what_is_before_is_content() -> None:
    constraint = tool_calls([], choice="required", format="hermes")
    answer = read(constraint, "use ", HERMES, "?", THINK, HERMES, reasoning=reasoning_end("</think>"))
    assert (answer.content, len(answer.calls), answer.malformed) == (f"use {HERMES}?</think>", 1, "")


def test_reasoning_that_never_ended_is_content_alone() -> None:
    constraint = tool_calls([], choice="required", format="hermes")
    answer = read(constraint, "use ", HERMES, reasoning=reasoning_end("</think>"))
    assert (answer.content, len(answer.calls), answer.malformed) == (f"use {HERMES}", 0, "")


def test_a_prompt_that_ended_the_reasoning_leaves_the_whole_answer() -> None:
    constraint = tool_calls([], choice="auto", format="hermes")
    end = reasoning_end("</done>")
    answer = read(constraint, HERMES, "</done>", reasoning=end, prompt="<think>no</done>")
    assert (answer.content, len(answer.calls)) == ("</done>", 1)


def test_a_stop_string_cuts_before_the_calls_are_read() -> None:
    constraint = tool_calls([], format="hermes")
    answer = read(constraint, HERMES, "STOP", finish=Finish("STOP_STRING", b"STOP", None, len(HERMES), False))
    assert (answer.content, len(answer.calls)) == ("", 1)
    answer = read(constraint, HERMES, END, finish=Finish("STOP_ID", b"", END, len(HERMES), False))
    assert (answer.content, len(answer.calls)) == ("", 1)

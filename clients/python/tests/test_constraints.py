"""Each constructor of a grammar or a constraint makes the message that it says."""

from __future__ import annotations

import json

import pytest
from constraintd_client import (
    CallTemplate,
    all_of,
    allow_list,
    allowed_tokens,
    banned_specials,
    deny_ranges,
    gbnf,
    json_object,
    json_schema,
    lazy,
    reasoning_end,
    regex,
    structural_tag,
    token_length,
    token_sequence,
    tool_calls,
    triggers,
)
from constraintd_client.keyword_report import report_of

from constraintd.v1 import grammar_pb2, session_pb2

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def test_a_gbnf_grammar_names_its_root() -> None:
    assert gbnf('root ::= "é"').gbnf == grammar_pb2.Gbnf(text='root ::= "é"'.encode(), root=b"root")
    assert gbnf(b'x ::= "a"', "x").gbnf.root == b"x"


def test_a_structural_tag_is_a_document_or_its_text() -> None:
    assert structural_tag({"triggers": ["<"], "structures": []}).structural_tag == b'{"triggers":["<"],"structures":[]}'
    assert structural_tag('{ "triggers": [] }').structural_tag == b'{ "triggers": [] }'


def test_json_options_are_left_out_where_they_are_the_defaults() -> None:
    for grammar in (json_schema(True), json_object(), structural_tag({})):
        assert not grammar.HasField("json_options")


def test_json_options_are_spelled_by_name() -> None:
    expected = grammar_pb2.JsonOptions(
        policy=grammar_pb2.SCHEMA_POLICY_APPROXIMATE,
        whitespace=grammar_pb2.JSON_WHITESPACE_COMPACT,
        formats_are_annotations=True,
    )
    options = {"policy": "approximate", "whitespace": "compact", "formats_are_annotations": True}
    for grammar in (json_schema(True, **options), json_object(**options), structural_tag({}, **options)):  # type: ignore[arg-type]
        assert grammar.json_options == expected
    calls = tool_calls(TOOLS, format="hermes", **options).tool_calls  # type: ignore[arg-type]
    assert calls.json_options == expected
    natural = json_schema(True, whitespace="natural").json_options
    assert (natural.policy, natural.whitespace) == (
        grammar_pb2.SCHEMA_POLICY_STRICT,
        grammar_pb2.JSON_WHITESPACE_NATURAL,
    )


def test_an_unknown_option_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="LENIENT"):
        json_schema(True, policy="lenient")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="XML"):
        tool_calls(TOOLS, format="xml")  # type: ignore[arg-type]


def test_each_trigger_sets_its_kind_and_its_options() -> None:
    assert triggers.word("<é>") == session_pb2.Trigger(word="<é>".encode())
    assert triggers.pattern("a(b)", exclusive=True) == session_pb2.Trigger(pattern=b"a(b)", exclusive=True)
    assert triggers.pattern_full(b"a.*", at_start=True) == session_pb2.Trigger(pattern_full=b"a.*", at_start=True)
    assert triggers.token(0).WhichOneof("kind") == "token"
    assert triggers.token(7, at_start=True, exclusive=True) == session_pb2.Trigger(
        token=7, at_start=True, exclusive=True
    )


def test_a_lazy_grammar_has_its_triggers_and_sleeps_again_if_told_to() -> None:
    asleep = lazy(regex("a"), triggers.word("<"), triggers.token(3), rearm=True).lazy
    assert asleep.grammar == regex("a")
    assert list(asleep.triggers) == [triggers.word("<"), triggers.token(3)]
    assert asleep.rearm
    by_id = lazy("abc", triggers.word("<")).lazy
    assert (by_id.grammar_id, by_id.rearm) == ("abc", False)


def test_all_of_takes_what_a_constraint_can_be() -> None:
    parts = all_of(regex("a"), "id", None, token_length(max=3)).all_of.constraints
    assert [part.WhichOneof("kind") for part in parts] == ["grammar", "grammar_id", "unconstrained", "token_rule"]


def test_each_token_rule_sets_its_ids() -> None:
    assert list(allowed_tokens([1, 2]).token_rule.allowed.ids) == [1, 2]
    assert [list(s.ids) for s in allow_list([[1], (1, 2), []]).token_rule.allow_list.sequences] == [[1], [1, 2], []]
    assert list(token_sequence((3, 3)).token_rule.sequence.ids) == [3, 3]
    assert list(banned_specials({5}).token_rule.banned_specials.ids) == [5]
    ranges = deny_ranges([(1, 4), (7, 8)]).token_rule.deny_ranges.ranges
    assert [(r.first, r.end) for r in ranges] == [(1, 4), (7, 8)]


def test_a_length_without_a_maximum_is_not_one_of_zero() -> None:
    assert not token_length(2).token_rule.length.HasField("max")
    none = token_length(max=0).token_rule.length
    assert (none.min, none.HasField("max"), none.max) == (0, True, 0)


def test_a_number_that_fits_no_field_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        allowed_tokens([-1])
    with pytest.raises(ValueError):
        triggers.token(2**32)


def test_tools_are_a_list_or_its_text() -> None:
    calls = tool_calls(TOOLS, format="mistral_args", single=True).tool_calls
    assert json.loads(calls.tools) == TOOLS
    assert (calls.tool_choice, calls.single) == (b"auto", True)
    assert calls.format == session_pb2.TOOL_CALL_FORMAT_MISTRAL_ARGS
    assert tool_calls("[ ]", format="hermes").tool_calls.tools == b"[ ]"


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("required", b"required"),
        ("none", b"none"),
        ("add", b'{"type":"function","function":{"name":"add"}}'),
        ({"type": "function", "function": {"name": "auto"}}, b'{"type":"function","function":{"name":"auto"}}'),
        ('{"type": "function"}', b'{"type": "function"}'),
    ],
)
def test_a_choice_is_a_word_or_a_function(choice: str, sent: bytes) -> None:
    assert tool_calls(TOOLS, choice=choice, format="hermes").tool_calls.tool_choice == sent


def test_a_template_is_a_tuple_of_its_first_members() -> None:
    short = tool_calls(TOOLS, template=("<|tool|>", b"</>")).tool_calls
    assert short.WhichOneof("wire_format") == "template"
    assert short.template == session_pb2.ToolCallTemplate(begin=b"<|tool|>", end=b"</>")
    full = tool_calls(TOOLS, template=CallTemplate("<", ">", "fn", "args", separator="|")).tool_calls.template
    assert full == session_pb2.ToolCallTemplate(
        begin=b"<", end=b">", name_key=b"fn", arguments_key=b"args", separator=b"|"
    )


def test_calls_are_written_in_one_way_and_it_has_to_be_said() -> None:
    with pytest.raises(TypeError, match="either"):
        tool_calls(TOOLS)
    with pytest.raises(TypeError, match="either"):
        tool_calls(TOOLS, format="hermes", template=("<",))
    with pytest.raises(TypeError):
        tool_calls(TOOLS, template=("1", "2", "3", "4", "5", "6"))


def test_reasoning_ends_at_texts_and_tokens() -> None:
    assert reasoning_end("</think>", b"</x>", tokens=[4], begin="<think>") == session_pb2.ReasoningEnd(
        texts=[b"</think>", b"</x>"], tokens=[4], begin=b"<think>"
    )
    assert reasoning_end(tokens=[4]) == session_pb2.ReasoningEnd(tokens=[4])


def test_a_verdict_newer_than_these_stubs_is_its_number() -> None:
    messages = [grammar_pb2.KeywordReport(verdict=2), grammar_pb2.KeywordReport(verdict=77)]  # type: ignore[arg-type]
    assert [entry.verdict for entry in report_of(messages)] == ["NARROWED", "77"]

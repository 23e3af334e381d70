"""What tools and tool_choice become."""

import json

import pytest

from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.errors import InvalidField
from constraintd.grammar.tools import plan_tools
from constraintd.grammar.tools_wire import HERMES, LLAMA3_JSON, MISTRAL, MISTRAL_ARGS, WireFormat
from tests.daemon_process import TOOL
from tests.unit.structural_tag.walk import accepts, lark


def function(name, parameters=None, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


TOOLS = json.dumps([function("a"), function("b", {"type": "object", "properties": {"n": {"type": "integer"}}})])
A = '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>'
B = '<tool_call>\n{"name": "b", "arguments": {"n": 1}}\n</tool_call>'
NAMED = '{"type": "function", "function": {"name": "b"}}'


def plan(choice="auto", wire=HERMES, tools=TOOLS, **options):
    return plan_tools(tools, choice, wire_format=wire, **options)


def test_auto_sleeps_until_the_marker_and_again_after_each_call():
    made = plan("auto")
    assert (made.wake.lazy, made.wake.rearm, made.wake.banned_tokens) == (True, True, ())
    assert made.wake.triggers == (Trigger(TriggerKind.WORD, "<tool_call>"),)
    grammar = lark(made.lark)
    assert accepts(grammar, A)
    assert not accepts(grammar, A + "\n" + B)


def test_auto_without_parallel_calls_ends_after_one():
    made = plan("auto", parallel_tool_calls=False)
    assert (made.wake.lazy, made.wake.rearm) == (True, False)


def test_required_is_one_or_more_calls_and_nothing_else():
    made = plan("required")
    assert (made.wake.lazy, made.wake.triggers, made.wake.rearm) == (False, (), False)
    grammar = lark(made.lark)
    assert accepts(grammar, A + "\n" + B + A)
    assert not accepts(grammar, "")
    assert not accepts(grammar, "Sure. " + A)


def test_required_without_parallel_calls_is_one_call():
    grammar = lark(plan("required", parallel_tool_calls=False).lark)
    assert accepts(grammar, B)
    assert not accepts(grammar, A + "\n" + B)


def test_a_named_function_is_one_call_of_it():
    grammar = lark(plan(NAMED).lark)
    assert accepts(grammar, B)
    assert not accepts(grammar, A)
    assert not accepts(grammar, B + "\n" + B)


def test_none_is_free_text_and_bans_only_a_marker_that_is_one_token():
    assert plan("none").lark == ""
    assert plan("none").wake.banned_tokens == ()
    assert plan("none", special_token={"<tool_call>": TOOL}.get).wake.banned_tokens == (TOOL,)


def test_the_choice_may_be_a_word_or_that_word_as_json():
    assert plan('"required"') == plan("required")


def test_a_marker_that_is_one_token_triggers_by_its_id_and_is_that_token():
    made = plan("auto", special_token={"<tool_call>": TOOL}.get)
    assert made.wake.triggers == (Trigger(TriggerKind.TOKEN, token=TOOL),)
    grammar = lark(made.lark)
    assert accepts(grammar, [TOOL, '{"name": "a", "arguments": {}}</tool_call>'])
    assert not accepts(grammar, A)


def test_llama_calls_begin_only_at_the_start_of_an_answer():
    made = plan("auto", LLAMA3_JSON)
    assert all(trigger.kind is TriggerKind.WORD and trigger.at_start for trigger in made.wake.triggers)
    assert made.wake.rearm is False


def test_a_mistral_list_holds_parallel_calls_so_nothing_has_to_wake_again():
    made = plan("auto", MISTRAL)
    assert (made.wake.triggers, made.wake.rearm) == ((Trigger(TriggerKind.WORD, "[TOOL_CALLS]"),), False)
    two = '[TOOL_CALLS] [{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]'
    assert accepts(lark(made.lark), two)
    assert not accepts(lark(plan("auto", MISTRAL, parallel_tool_calls=False).lark), two)


def test_a_name_that_begins_another_is_told_from_it():
    tools = json.dumps([function("get"), function("get_all")])
    grammar = lark(plan("required", MISTRAL_ARGS, tools).lark)
    assert accepts(grammar, "[TOOL_CALLS]get[ARGS]{}")
    assert accepts(grammar, "[TOOL_CALLS]get_all[ARGS]{}")
    assert not accepts(grammar, "[TOOL_CALLS]get_[ARGS]{}")


def test_local_references_in_parameters_stay_local_to_their_tool():
    def referring(type_):
        return {"properties": {"v": {"$ref": "#/$defs/v"}}, "required": ["v"], "$defs": {"v": {"type": type_}}}

    tools = json.dumps([function("a", referring("integer")), function("b", referring("string"))])
    grammar = lark(plan("required", MISTRAL_ARGS, tools).lark)
    assert accepts(grammar, '[TOOL_CALLS]a[ARGS]{"v": 1}')
    assert accepts(grammar, '[TOOL_CALLS]b[ARGS]{"v": "1"}')
    assert not accepts(grammar, '[TOOL_CALLS]b[ARGS]{"v": 1}')


def test_a_hundred_tools_make_a_grammar():
    tools = json.dumps([function(f"tool_{i}", {"type": "object", "properties": {}}) for i in range(100)])
    assert accepts(lark(plan("required", HERMES, tools).lark), A.replace('"a"', '"tool_57"'))


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        ("", "tools"),
        ("{", "tools"),
        ("{}", "tools"),
        ("[]", "tools"),
        ("[1]", "tools/0/type"),
        ([{"type": "retrieval"}], "tools/0/type"),
        ([{"type": "function"}], "tools/0/function"),
        ([function("")], "tools/0/function/name"),
        ([function("a b")], "tools/0/function/name"),
        ([function("a"), function("b"), function("a")], "tools/2/function/name"),
        ([function("a", strict="yes")], "tools/0/function/strict"),
        ([function("a", [])], "tools/0/function/parameters"),
        ([function("a", {"type": "string"})], "tools/0/function/parameters/type"),
        (
            [function("a"), function("b", {"properties": {"x": {"type": "strin"}}})],
            "tools/1/function/parameters/properties/x/type",
        ),
        (
            [function("a", {"properties": {"x": {"$ref": "#/$defs/no"}}})],
            "tools/0/function/parameters/properties/x/$ref",
        ),
        ([function("a", {"x-guidance": {}})], "tools/0/function/parameters/x-guidance"),
    ],
)
def test_tools_are_refused_at_their_json_pointer(tools, field):
    with pytest.raises(InvalidField) as refused:
        plan(tools=tools if isinstance(tools, str) else json.dumps(tools))
    assert refused.value.metadata["field"] == field


@pytest.mark.parametrize(
    ("choice", "field"),
    [
        ("sometimes", "tool_choice"),
        ("[]", "tool_choice"),
        ('{"type": "function"}', "tool_choice/function/name"),
        ('{"type": "function", "function": {"name": "c"}}', "tool_choice/function/name"),
    ],
)
def test_a_choice_is_refused_at_its_json_pointer(choice, field):
    with pytest.raises(InvalidField) as refused:
        plan(choice)
    assert refused.value.metadata["field"] == field


def test_a_wire_format_without_a_begin_is_refused():
    with pytest.raises(InvalidField, match="begin"):
        plan("auto", WireFormat(""))

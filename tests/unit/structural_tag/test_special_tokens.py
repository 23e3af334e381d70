"""Markers that are special tokens match those tokens and nothing spelled out."""

from tests.daemon_process import TOOL
from tests.unit.structural_tag.walk import accepts, tag

SPECIAL = {"<tool>": TOOL}.get


def test_a_begin_that_is_one_special_token_is_that_token_only():
    grammar = tag(
        {"type": "tag", "begin": "<tool>", "content": {"type": "any_text"}, "end": "."}, special_token=SPECIAL
    )
    assert accepts(grammar, [TOOL, "abc."])
    assert not accepts(grammar, "<tool>abc.")


def test_free_text_goes_up_to_a_special_token_and_may_spell_it():
    grammar = tag(
        {"type": "tag", "begin": "a", "content": {"type": "any_text"}, "end": "<tool>"}, special_token=SPECIAL
    )
    assert accepts(grammar, ["a<tool>b", TOOL])
    assert not accepts(grammar, "a<tool>")


def test_a_trigger_that_is_a_special_token_begins_tags():
    call = {"begin": "<tool>x", "content": {"type": "json_schema", "json_schema": {"type": "object"}}, "end": "."}
    grammar = tag({"type": "triggered_tags", "triggers": ["<tool>"], "tags": [call]}, special_token=SPECIAL)
    assert accepts(grammar, ["text <tool>x ", TOOL, "x{}. more ", TOOL, "x{}."])
    assert not accepts(grammar, ["text", TOOL, "y"])


def test_a_trigger_that_ends_inside_a_special_token_is_that_token():
    call = {"begin": "<tool>x", "content": {"type": "const_string", "value": "1"}, "end": "."}
    grammar = tag({"type": "triggered_tags", "triggers": ["<to"], "tags": [call]}, special_token=SPECIAL)
    assert accepts(grammar, ["a", TOOL, "x1."])
    assert not accepts(grammar, "a<tool>x1.")


def test_a_marker_that_holds_a_special_token_is_text_around_the_token():
    grammar = tag(
        {"type": "tag", "begin": "a<tool>b", "content": {"type": "any_text"}, "end": "\n<tool>"}, special_token=SPECIAL
    )
    assert accepts(grammar, ["a", TOOL, "b one\ntwo\n", TOOL])
    assert not accepts(grammar, ["a", TOOL, "b one", TOOL])
    assert not accepts(grammar, "a<tool>b")

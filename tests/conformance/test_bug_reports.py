"""Faults of other engines from public reports: what a report's steps tell, walked on a real daemon.

The reports (by id, title and project; our own words throughout) are those of the public case file `bugreports`, whose
accepted and rejected texts run through `constraintd check`. Here is what texts alone can't tell:

| report | shown by |
|---|---|
| bug-002, 018, 022, 023, 025, 068, 070, 071, 073, 080, 081 | the file's own texts, on one grammar's language |
| bug-034 | the file's texts; `json_schema/test_rewrites.py` for the other kinds of white space |
| bug-003, 006, 008, 019, 027, 033, 041, 042, 054, 057, 066, 067, 086 | here, by name |
| bug-011, 013, 030, 031, 046, 048, 049, 056, 058, 059, 062, 082 | `test_bug_reports_sessions.py` |
| bug-037, 038, 052, 053, 055 | `test_bug_reports_side_by_side.py` |

The protocol has neither drafts (bug-048, 049) nor forced runs (bug-057) yet: what has to hold of them is shown on forks
and on masks.
"""

from __future__ import annotations

import json
import time

import pytest
from constraintd_client import (
    InvalidGrammar,
    InvalidVocabulary,
    SessionFinished,
    TokenNotAllowed,
    allowed_ids,
    json_schema,
    lark,
    regex,
    tool_calls,
)

from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.errors import TokenNotAllowed as NotAllowed
from constraintd.grammar.source import GrammarKind, parse_grammar
from constraintd.session.directive import DenseMask
from tests.conformance.bug_report_sessions import CHILD, EOGS, QUOTED_O, SPECIAL, SSID, TOKENS, VALUE_O, legal
from tests.plain_daemon import BYTES, grammar_part, plain_session

# --- languages that the case file can't hold ---


def test_bug_003_an_ignored_terminal_may_stand_anywhere_but_in_front(sessions):
    # llguidance skips ignored text behind a token of the grammar and never before the first: its dialect's rule.
    grammar = lark("start: WS*\n%import common.WS\nIGNORED: /\\/\\*[^*]*\\*\\//\n%ignore IGNORED\n")
    assert ord("/") not in legal(sessions.open(grammar))
    session = sessions.open(grammar)
    assert sessions.take(session, " /* c */").complete
    assert sessions.take(session, "/* d */ ").complete


RANGES = [
    ({"type": "number", "exclusiveMinimum": 0}, ["0.1", "0.000001", "1", "7.5"], ["0", "0.0", "-0.1"]),
    ({"type": "number", "minimum": 2}, ["2", "2.5", "10"], ["1", "1.9", "0"]),
    ({"type": "number", "minimum": 1, "maximum": 5}, ["1", "5", "4.99", "5.0"], ["5.7", "5.01", "0.9"]),
    ({"type": "integer", "minimum": -5}, ["-5", "-1", "0", "7", "1234"], ["-6", "-50", "-"]),
    ({"type": "number", "exclusiveMaximum": 1}, ["0.99", "0", "-3"], ["1", "1.0", "2"]),
]


@pytest.mark.parametrize(("schema", "accepted", "rejected"), RANGES, ids=lambda value: str(value)[:40])
def test_bug_019_bounds_of_numbers_are_exact(sessions, schema, accepted, rejected):
    def is_taken(text):
        session = sessions.open(json_schema(schema))
        try:
            directive = sessions.take(session, text)
        except (TokenNotAllowed, SessionFinished):
            return False
        return directive.complete if directive.finish is None else not directive.finish.constraint_incomplete

    assert [text for text in accepted if not is_taken(text)] == []
    assert [text for text in rejected if is_taken(text)] == []


@pytest.mark.parametrize("pattern", ["[\x00-\u2e7f]+", r"[\x00-\u2e7f]+", r"[\0-\u2e7f]+"])
def test_bug_041_a_nul_in_a_class_is_a_character_however_it_is_written(sessions, pattern):
    for text, complete in (("abc", True), ("Ω", True), ("\x00", True)):
        assert sessions.take(sessions.open(regex(pattern)), text).complete is complete
    with pytest.raises(TokenNotAllowed):
        sessions.take(sessions.open(regex(pattern)), "漢")


def test_bug_042_a_reference_that_never_ends_is_refused_before_decoding(sessions):
    endless = [
        {"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
    ]
    for schema in endless:
        with pytest.raises(InvalidGrammar, match=r"no finite JSON value .* leads only to itself"):
            sessions.open(json_schema(schema))
    optional = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    nullable = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}
    for schema, text in ((optional, '{"next":{}}'), ({**nullable, "required": ["next"]}, '{"next":{"next":null}}')):
        assert sessions.take(sessions.open(json_schema(schema)), text).finish.reason == "GRAMMAR_EXHAUSTED"


def test_bug_054_a_model_may_nest_20_000_levels_deep(sessions):
    node = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
    properties = {"type": "object", "properties": {"child": node}, "required": ["child"], "additionalProperties": False}
    session = sessions.open(json_schema({"$defs": {"node": properties}, "$ref": "#/$defs/node"}))
    other = sessions.open(regex("[0-9]+"))
    for _ in range(80):
        sessions.take(session, *[CHILD] * 250)
    assert legal(session) >= {ord("{"), ord("n"), CHILD}
    sessions.take(session, "null")
    assert legal(session) >= {ord("}")}
    assert sessions.take(other, "17").complete


def test_bug_066_one_tool_does_not_spoil_the_others_and_a_bad_one_is_named(sessions):
    long_text = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 65536}}, "required": ["text"]}
    empty = {"type": "object", "properties": {}, "additionalProperties": False}

    def tools(*parameters):
        functions = [{"name": f"tool{index}", "parameters": each} for index, each in enumerate(parameters)]
        return [{"type": "function", "function": function} for function in functions]

    calls = tool_calls(tools(empty, long_text), choice="required", format="hermes", single=True)
    for call in ('{"name": "tool0", "arguments": {}}', '{"name": "tool1", "arguments": {"text": "x"}}'):
        finish = sessions.take(sessions.open(calls), f"<tool_call>{call}</tool_call>").finish
        assert (finish.reason, finish.constraint_incomplete) == ("GRAMMAR_EXHAUSTED", False)
    with pytest.raises(InvalidGrammar, match="tools/1/function/parameters/properties/x/type"):
        sessions.open(tool_calls(tools(empty, {"properties": {"x": {"type": "txt"}}}), format="hermes"))


def test_bug_067_a_great_max_length_compiles_in_less_than_five_seconds(sessions):
    inner = {"type": "object", "properties": {"s": {"type": "string", "minLength": 1, "maxLength": 65536}}}
    schema = {"type": "object", "properties": {"o": {**inner, "required": ["s"]}}, "required": ["o"]}
    began = time.monotonic()
    session = sessions.open(json_schema({**schema, "title": "not compiled before"}))
    assert time.monotonic() - began < 5
    assert sessions.take(session, '{"o":{"s":"x"}}').finish.reason == "GRAMMAR_EXHAUSTED"


def test_bug_033_a_table_of_bounded_lists_has_masks_within_20_ms():
    rows = {"type": "array", "minItems": 5, "maxItems": 10, "items": {"type": "string"}}
    table = {"type": "array", "minItems": 5, "maxItems": 10, "items": rows}
    schema = {"type": "object", "properties": {"content": table}, "required": ["content"]}
    began = time.perf_counter()
    engine = LlguidanceEngine(BYTES)
    compiled = engine.compile(parse_grammar(GrammarKind.JSON_SCHEMA, [json.dumps(schema).encode()], max_bytes=10_000))
    assert time.perf_counter() - began < 1
    text = json.dumps({"content": [["a"] * 5] * 5}).encode()
    slowest = [1.0] * len(text)
    for _ in range(3):  # the best of three, so that only the engine's own time counts
        session = plain_session([grammar_part("table", compiled)])
        for index, byte in enumerate(text):
            began = time.perf_counter()
            session.step(session.epoch, index, [byte], [1.0])
            slowest[index] = min(slowest[index], time.perf_counter() - began)
    assert session.finish is not None
    assert max(slowest) < 0.020


# --- masks and vocabularies ---


def test_bug_006_every_eog_is_legal_where_the_text_may_end_and_any_of_them_ends_it(sessions):
    for eog in EOGS:
        session = sessions.open(json_schema({"type": "integer"}))
        sessions.take(session, "-")
        digits = {*range(ord("0"), ord("9") + 1)}
        assert legal(session) == digits
        sessions.take(session, "7")
        assert legal(session) == digits | set(EOGS)
        finish = sessions.take(session, eog).finish
        assert (finish.reason, finish.stop_id, finish.constraint_incomplete) == ("EOG", eog, False)
    nothing_may_follow = sessions.open(json_schema({"type": "object", "properties": {"a": {"type": "integer"}}}))
    assert not sessions.take(nothing_may_follow, '{"a":1').allows_eog
    assert sessions.take(nothing_may_follow, "}").finish.reason == "GRAMMAR_EXHAUSTED"


@pytest.mark.parametrize(("width", "words"), [(271, 9), (288, 9), (289, 10), (300, 10), (1056, 33)])
def test_bug_008_a_mask_is_as_wide_as_the_logits_and_0_past_the_vocabulary(client, width, words):
    info = client.register_token_table(TOKENS, special=SPECIAL, eog_ids=EOGS, logits_width=width)
    mask = client.open_session(info.vocabulary_id, None).directive.mask
    assert len(mask) == words
    assert allowed_ids(mask).max() == 270


def test_bug_008_logits_narrower_than_the_vocabulary_cut_the_mask_and_lose_no_eog(client):
    info = client.register_token_table(TOKENS, eog_ids=[0], logits_width=260)
    mask = client.open_session(info.vocabulary_id, None).directive.mask
    assert (len(mask), allowed_ids(mask).max()) == (9, 259)
    with pytest.raises(InvalidVocabulary, match="EOG id 268"):
        client.register_token_table(TOKENS, special=SPECIAL, eog_ids=EOGS, logits_width=260)


def test_bug_027_at_every_place_a_token_is_accepted_iff_its_bit_is_set():
    words = {"type": ["string", "null"]}
    inner = {"value": words, "nested_nested": {"type": "array", "items": words}}
    nested = {"type": "object", "properties": inner, "required": ["value", "nested_nested"]}
    properties = {"value": {**words, "maxLength": 10}, "nested": {**nested, "maxItems": 10, "minItems": 1}}
    schema = {"type": "object", "properties": properties, "required": ["value", "nested"]}
    source = json.dumps({**schema, "additionalProperties": False}).encode()
    compiled = LlguidanceEngine(BYTES).compile(parse_grammar(GrammarKind.JSON_SCHEMA, [source], max_bytes=10_000))
    part = grammar_part("schema", compiled)
    session = plain_session([part])
    text = b'{"value":null,"nested":{"value":"x","nested_nested":[null,"y"]}}'
    for position, byte in enumerate(text):
        outcome = session.directive.outcome
        assert isinstance(outcome, DenseMask)
        for token in range(8 * len(outcome.words)):
            if outcome.allows(token):
                trial, tokens = plain_session([part]), [*text[:position], token]
                trial.step(trial.epoch, 0, tokens, [1.0] * len(tokens))
            else:
                with pytest.raises(NotAllowed):
                    session.step(session.epoch, position, [token], [1.0])
        session.step(session.epoch, position, [byte], [1.0])
    assert session.finish is not None


def test_bug_057_a_token_that_reaches_past_what_is_forced_stays_legal(sessions):
    schema = {"type": "object", "properties": {"ssid": {"type": "string"}, "securityProtocol": {"type": "string"}}}
    grammar = json_schema({**schema, "required": ["ssid", "securityProtocol"], "additionalProperties": False})
    assert {ord('"'), SSID} <= sessions.after(grammar, "{")
    assert {ord('"'), VALUE_O} <= sessions.after(grammar, "{", SSID)
    assert {ord('"'), QUOTED_O} <= sessions.after(grammar, '{"ssid":')
    ways = [('{"ssid":"O',), ("{", SSID, '":"O'), ("{", SSID, VALUE_O), ('{"ssid":', QUOTED_O)]
    assert len({frozenset(sessions.after(grammar, *way)) for way in ways}) == 1


def test_bug_086_a_special_token_that_is_in_the_base_vocabulary_too_is_no_text(client):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": 1, "content": "<c>", **flags}, {"id": 2, "content": "</s>", **flags}]
    model = {"type": "BPE", "vocab": {"a": 0, "<c>": 1}, "merges": []}
    decoder = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = json.dumps({"model": model, "added_tokens": added, "decoder": decoder}).encode()
    info = client.register_vocabulary("tokenizer_json", tokenizer, eog_ids=[2])
    assert legal(client.open_session(info.vocabulary_id, regex("<c>|a"))) == {0}

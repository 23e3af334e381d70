"""What this project decides about the engine's traps."""

import json

import pytest

from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.errors import InvalidGrammar
from constraintd.grammar.source import GrammarKind, parse_grammar
from constraintd.mask.packed import empty, ids
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from tests.daemon_process import BYTE_TABLE, EOG, HOLE, SECOND_EOG, TOOL, WIDTH

ENGINE = LlguidanceEngine(
    load_vocabulary(VocabularyFormat.TOKEN_TABLE, BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG])
)


def compile_(kind, *texts):
    return ENGINE.compile(parse_grammar(kind, [t.encode() for t in texts], max_bytes=1 << 20))


def schema(document):
    return compile_(GrammarKind.JSON_SCHEMA, document if isinstance(document, str) else json.dumps(document))


def mask(matcher):
    words = empty(WIDTH)
    matcher.fill_mask(words)
    return set(ids(words).tolist())


def accepts(grammar, text):
    matcher = grammar.start()
    for byte in text.encode():
        if byte not in mask(matcher):
            return False
        matcher.consume(byte)
    return matcher.is_accepting()


def test_a_forced_text_allows_every_token_that_begins_it_not_only_the_longest():
    assert mask(compile_(GrammarKind.REGEX, "abc").start()) == {ord("a"), 261, 262}


def test_a_lark_grammar_can_not_turn_forcing_on():
    grammar = compile_(GrammarKind.LARK, '%llguidance {"no_forcing": false}\nstart: "abc"')
    assert mask(grammar.start()) == {ord("a"), 261, 262}


def test_a_special_token_in_lark_is_that_token_and_not_its_text():
    grammar = compile_(GrammarKind.LARK, 'start: <tool> "a"')
    assert mask(grammar.start()) == {TOOL}


def test_any_token_in_lark_is_any_real_id_but_a_hole():
    assert HOLE not in mask(compile_(GrammarKind.LARK, "start: <[*]>").start())


def test_a_reference_that_leads_only_to_itself_is_refused_at_compile():
    for document in ({"$ref": "#"}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}):
        with pytest.raises(InvalidGrammar, match="leads only to itself"):
            schema(document)


def test_a_thousand_optional_properties_go_past_the_first_token():
    grammar = schema({"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(1000)}})
    assert accepts(grammar, '{"p999": null}')


def test_json_white_space_is_bounded():
    grammar = compile_(GrammarKind.JSON_OBJECT)
    assert accepts(grammar, "{\n" + " " * 60 + '"a":\t[1 ,2 ]}')
    assert not accepts(grammar, "{" + " " * 65 + "}")


def test_json_objects_are_strict_rfc_8259():
    grammar = compile_(GrammarKind.JSON_OBJECT)
    for text in ("{}", '{"a":1.5e-3,"b":[true,false,null],"c":{"d":"\\u00e9\\n\\ud83d\\ude00é"}}'):
        assert accepts(grammar, text), text
    for text in ("[]", "1", "{a:1}", '{"a":1.2.3}', '{"a":01}', '{"a":nul}', '{"a":"\\x"}', '{"a":1,}', '{"a":"\n"}'):
        assert not accepts(grammar, text), text


def test_a_choice_takes_its_texts_as_they_are():
    grammar = compile_(GrammarKind.CHOICE, "a", 'a"b\\', "a\nb/", "é")
    for text in ("a", 'a"b\\', "a\nb/", "é"):
        assert accepts(grammar, text), text
    assert not accepts(grammar, 'a"')


def test_an_empty_choice_is_complete_at_once():
    grammar = compile_(GrammarKind.CHOICE, "", "a")
    assert {EOG, SECOND_EOG} <= mask(grammar.start())


def test_a_regex_matches_the_whole_text_with_or_without_anchors():
    for pattern in ("ab", "^ab$"):
        grammar = compile_(GrammarKind.REGEX, pattern)
        assert accepts(grammar, "ab")
        assert not accepts(grammar, "abb")
    assert accepts(compile_(GrammarKind.REGEX, "a/b\n"), "a/b\n")


def test_engine_options_inside_a_schema_are_refused():
    with pytest.raises(InvalidGrammar, match="x-guidance"):
        schema({"x-guidance": {"lenient": True}, "type": "object"})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("false", "no finite JSON value satisfies"),
        ("[1]", "an object, true or false"),
        ("1", "an object, true or false"),
        ('{"type": "strin"}', "/type must be among null"),
        ('{"$ref": "#/nowhere"}', "nowhere"),
        ('{"type": "string", "pattern": "("}', "pattern|regex"),
    ],
)
def test_schemas_that_can_not_be_used_are_refused_by_what_is_wrong(document, message):
    with pytest.raises(InvalidGrammar, match=message):
        schema(document)


def test_the_empty_schema_and_true_are_any_json():
    for document in ("{}", "true"):
        assert accepts(schema(document), '[1, "a", null]')


def test_a_lark_error_names_line_and_column_of_the_user_s_text():
    with pytest.raises(InvalidGrammar) as caught:
        compile_(GrammarKind.LARK, 'start: a\na: "x" missing')
    assert caught.value.metadata["location"] == "2:4"


def test_forks_go_on_independently():
    matcher = compile_(GrammarKind.REGEX, "a(bc|d)").start()
    matcher.consume(97)
    twin = matcher.fork()
    matcher.consume(ord("b"))
    assert mask(twin) == {ord("b"), ord("d")}
    assert mask(matcher) == {ord("c")}

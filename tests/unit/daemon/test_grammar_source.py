import pytest

from constraintd.errors import InvalidField, InvalidGrammar, TooLarge
from constraintd.grammar.source import GrammarKind, canonical_json, parse_grammar


def parse(kind, *texts, max_bytes=10_000):
    return parse_grammar(kind, [t if isinstance(t, bytes) else t.encode() for t in texts], max_bytes=max_bytes)


def test_white_space_between_json_parts_does_not_change_the_id():
    one = parse(GrammarKind.JSON_SCHEMA, '{"type": "object", "title": "a  b"}')
    other = parse(GrammarKind.JSON_SCHEMA, '\n{"type":"object",\t"title":"a  b"}')
    assert one == other
    assert one.texts == ('{"type":"object","title":"a  b"}',)


def test_member_order_and_the_spelling_of_numbers_are_meaning():
    assert (
        parse(GrammarKind.JSON_SCHEMA, '{"a":1,"b":2}').grammar_id
        != parse(GrammarKind.JSON_SCHEMA, '{"b":2,"a":1}').grammar_id
    )
    assert canonical_json('{"maximum": 1e400, "minimum": 1.0}') == '{"maximum":1e400,"minimum":1.0}'


def test_white_space_inside_strings_and_escaped_quotes_stay():
    assert canonical_json(r'{"const": "a \" b"}') == r'{"const":"a \" b"}'


def test_the_same_text_as_regex_and_lark_are_two_grammars():
    assert parse(GrammarKind.REGEX, "start").grammar_id != parse(GrammarKind.LARK, "start").grammar_id


def test_choices_can_not_run_into_each_other():
    assert parse(GrammarKind.CHOICE, "ab", "c").grammar_id != parse(GrammarKind.CHOICE, "a", "bc").grammar_id


def test_a_repeated_choice_is_the_same_choice():
    assert parse(GrammarKind.CHOICE, "a", "b", "a") == parse(GrammarKind.CHOICE, "a", "b")


def test_the_id_is_the_same_everywhere():
    # Written out: a change of the canonical form or the hash is a change of the protocol.
    assert (
        parse(GrammarKind.CHOICE, "yes", "no").grammar_id
        == "8290362504febd30f744a904d01a4a5f040397cb7a6d19491e100609ae542854"
    )


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ('{"a": 1,\n "b": }', "2:7"),
        ('{"a": 1, "a": 2}', "a"),
        ('{"properties": {"x": {"type": "string", "type": "integer"}}}', "type"),
        ('{"const": NaN}', "NaN"),
        ('{"const": -Infinity}', "-Infinity"),
    ],
)
def test_what_is_not_plain_json_is_refused_with_its_place(text, location):
    with pytest.raises(InvalidGrammar) as caught:
        parse(GrammarKind.JSON_SCHEMA, text)
    assert caught.value.metadata["location"] == location


def test_json_of_any_depth_is_refused_or_taken_but_never_kills():
    with pytest.raises(InvalidGrammar, match="nested too deeply"):
        parse(GrammarKind.JSON_SCHEMA, "[" * 100_000, max_bytes=1_000_000)


def test_text_that_is_not_utf8_is_refused_with_the_byte():
    with pytest.raises(InvalidField, match="not UTF-8 at byte 2"):
        parse(GrammarKind.REGEX, b"ab\xff")


def test_an_empty_text_is_no_grammar():
    with pytest.raises(InvalidGrammar, match="the text is empty"):
        parse(GrammarKind.LARK, " \n")


def test_a_choice_of_nothing_is_refused():
    with pytest.raises(InvalidField, match="at least one text"):
        parse(GrammarKind.CHOICE)


def test_the_size_limit_counts_all_texts():
    with pytest.raises(TooLarge) as caught:
        parse(GrammarKind.CHOICE, "12345", "678901", max_bytes=10)
    assert caught.value.metadata == {"field": "grammar.choice", "limit": "10", "actual": "11"}

"""What GBNF texts mean, as rules."""

import pytest

from constraintd.grammar.gbnf import parse_gbnf
from constraintd.grammar.gbnf_rules import Characters, Literal, Reference, Term, TokenElement


def alternatives(text):
    rules = parse_gbnf(text)
    return rules.rules[rules.root].alternatives


def only(text):
    """The element of a rule that has one alternative of one term."""
    ((term,),) = alternatives(text)
    return term


def test_a_literal_is_its_characters_with_escapes_undone():
    assert only(r'root ::= "a\n\t\r\\\"\[\]\-\x41\u20ac\U0001F600"').element == Literal('a\n\t\r\\"[]-A€😀')


def test_an_escape_names_a_character_and_not_a_byte():
    assert only(r'root ::= "\xe9"').element == Literal("é")


def test_a_class_is_merged_ranges():
    assert only("root ::= [c-ea-bx]").element == Characters(((0x61, 0x65), (0x78, 0x78)))


def test_a_minus_before_the_bracket_is_a_minus():
    assert only("root ::= [+-]").element == Characters(((0x2B, 0x2B), (0x2D, 0x2D)))


def test_a_negated_class_leaves_out_surrogates_too():
    assert only("root ::= [^a]").element == Characters(((0, 0x60), (0x62, 0xD7FF), (0xE000, 0x10FFFF)))


def test_a_dot_is_any_character_newline_too():
    assert only("root ::= .").element == Characters(((0, 0xD7FF), (0xE000, 0x10FFFF)))


@pytest.mark.parametrize(
    ("quantifier", "least", "most"),
    [
        ("*", 0, None),
        ("+", 1, None),
        ("?", 0, 1),
        ("{3}", 3, 3),
        ("{ 2 , }", 2, None),
        ("{0,4}", 0, 4),
        (" {1, 2}", 1, 2),
    ],
)
def test_a_quantifier_is_two_bounds(quantifier, least, most):
    assert only(f'root ::= "ab"{quantifier}') == Term(Literal("ab"), least, most)


def test_a_quantifier_on_a_quantified_term_repeats_both():
    rules = parse_gbnf('root ::= "a"{2}*')
    term = rules.rules[rules.root].alternatives[0][0]
    assert (term.least, term.most) == (0, None)
    assert isinstance(term.element, Reference)
    assert rules.rules[term.element.rule].alternatives == ((Term(Literal("a"), 2, 2),),)


def test_token_elements():
    assert only("root ::= <[7]>").element == TokenElement(7, None, False, "1:10")
    assert only("root ::= !<think>").element == TokenElement(None, "<think>", True, "1:10")


def test_alternatives_may_be_empty():
    assert alternatives('root ::= | "a" | ""') == ((), (Term(Literal("a")),), (Term(Literal("")),))


def test_newlines_are_free_in_groups_behind_a_bar_and_behind_the_sign():
    text = 'root ::=\n\n  # why\n  ( "a"\n  | "b" # x\n  )\n  '
    rules = parse_gbnf(text)
    group = rules.rules[rules.rules[rules.root].alternatives[0][0].element.rule]
    assert [alternative[0].element for alternative in group.alternatives] == [Literal("a"), Literal("b")]
    assert alternatives('root ::= "a" |\n "b"\n') == ((Term(Literal("a")),), (Term(Literal("b")),))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_ends_a_rule(end):
    rules = parse_gbnf(f'root ::= a_1{end}a_1 ::= "x"{end}')
    assert [rule.name for rule in rules.rules] == ["root", "a_1"]


def test_the_root_is_the_rule_that_is_asked_for():
    rules = parse_gbnf('a ::= "x"\nb ::= "y"', root="b")
    assert rules.rules[rules.root].name == "b"


def test_a_group_is_named_after_its_rule_and_place():
    rules = parse_gbnf('root ::= "a" ("b")')
    assert [(rule.name, rule.named) for rule in rules.rules] == [("root", True), ("root(1:14)", False)]


def test_twenty_thousand_alternatives_are_read():
    text = "root ::= " + " | ".join(f'"word{number}"' for number in range(20_000))
    assert len(alternatives(text)) == 20_000


def test_twenty_thousand_open_groups_need_no_deep_calls():
    assert len(parse_gbnf("root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000).rules) == 20_001

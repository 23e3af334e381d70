"""Every error of a GBNF text names its line and column."""

import pytest

from constraintd.errors import InvalidGrammar, TooLarge
from constraintd.grammar.gbnf import parse_gbnf
from constraintd.grammar.gbnf_rules import GbnfLimits


def refusal(text, **options):
    with pytest.raises(InvalidGrammar) as caught:
        parse_gbnf(text, **options)
    return caught.value


@pytest.mark.parametrize(
    ("text", "location", "said"),
    [
        ('root = "a"', "1:6", "expected '::=' after the rule's name 'root', found '='"),
        ('"a"', "1:1", "expected a rule's name, found '\"'"),
        ('root ::= "a"\n  | "b"', "2:3", "expected a rule's name, found '|'"),
        ('root ::= "a" )', "1:14", "expected more of the rule, or the end of the line, found ')'"),
        ('root ::= ("a"', "1:14", "expected ')' for the '(' at 1:10, or more of that group, found the end of the text"),
        ('root ::= "a', "1:10", "no closing '\"'"),
        ("root ::= [a", "1:10", "no closing ']'"),
        ("root ::= []", "1:10", "the class [] has no characters"),
        ("root ::= [^]", "1:10", "the class [^] has no characters"),
        ("root ::= [xz-a]", "1:12", "the range z-a is upside down"),
        (r"root ::= [^\x00-\U0010ffff]", "1:10", "matches no character"),
        (r'root ::= "\q"', "1:11", "\\q is no escape"),
        (r'root ::= "\x4"', "1:11", "\\x needs 2 hexadecimal digits, 1 stand"),
        (r'root ::= "\U00110000"', "1:11", "U+110000 is past the last character"),
        (r'root ::= "\ud800"', "1:11", "U+D800 is a surrogate"),
        ("root ::= *", "1:10", "'*' has nothing before it to repeat"),
        ('root ::= "a" | +', "1:16", "'+' has nothing before it to repeat"),
        ('root ::= "a"{,3}', "1:14", "expected the least count, as in {2} or {0,3}, found ','"),
        ('root ::= "a"{}', "1:14", "expected the least count"),
        ('root ::= "a"{4,2}', "1:13", "the repetition {4,2} ends below its beginning"),
        ('root ::= "a"{5,0}', "1:13", "the repetition {5,0} ends below its beginning"),
        ('root ::= "a"{2', "1:15", "expected '}' at the repetition's end, found the end of the text"),
        ('root ::= "a"{5000}', "1:14", "a repetition of 5000 is over the limit of 4096"),
        ('root ::= "a"{0,99999999999999999999}', "1:16", "is over the limit of 4096"),
        ("root ::= ((.{100}){100}){101}", "1:25", "multiply to 1010000, over the limit of 1000000"),
        ("root ::= !a", "1:11", "expected a token such as <[7]> or <think> after '!', found 'a'"),
        ("root ::= <think", "1:10", "no closing '>'"),
        ("root ::= <>", "1:10", "<> names no token"),
        ("root ::= a\nb ::= root", "1:10", "rule 'a' is used but nowhere defined"),
        ('root ::= itme\nitem ::= "x"', "1:10", "did you mean 'item'?"),
        ('a ::= "x"', "1:1", "no rule is named 'root'"),
        ("", "1:1", "no rule is named 'root'"),
        ('root ::= "a"\n\nroot ::= "b"', "3:1", "rule 'root' is defined on line 1 already (at 1:1)"),
        ('root ::= "a" \x00', "1:14", "found '\\x00'"),
        ("root ::= äb", "1:10", "found 'ä'"),
    ],
)
def test_an_error_names_its_place_and_what_stands_there(text, location, said):
    error = refusal(text)
    assert error.metadata["location"] == location
    assert said in error.message


@pytest.mark.parametrize(
    ("text", "chain", "location"),
    [
        # llama.cpp's own refusals (tests/test-grammar-integration.cpp, MIT)
        ('root ::= "a" | root "a"', "root -> root", "1:1"),
        ('root ::= asdf\nasdf ::= "a" | foo "b"\nfoo ::= "c" | asdf "d" | "e"', "asdf -> foo -> asdf", "2:1"),
        (
            'root ::= asdf\nasdf ::= "a" | foo "b"\nfoo ::= "c" | empty asdf "d" | "e"\nempty ::= "blah" | ',
            "asdf -> foo -> asdf",
            "2:1",
        ),
        ('root ::= ("x"? | "y"*) root "z" | "a"', "root -> root", "1:1"),
        ("root ::= root", "root -> root", "1:1"),
        ('root ::= "a" | (root)*', "root -> root", "1:1"),
        ('root ::= "" root? "a"', "root -> root", "1:1"),
        ('root ::= "a"\nspace ::= space " "', "space -> space", "2:1"),
    ],
)
def test_left_recursion_names_the_chain(text, chain, location):
    error = refusal(text)
    assert (error.metadata["chain"], error.metadata["location"]) == (chain, location)


def test_a_chain_of_twenty_thousand_rules_is_found_without_deep_calls():
    rules = [f"r{number} ::= r{number + 1}" for number in range(20_000)]
    error = refusal("\n".join([*rules, 'r20000 ::= r0 "x"']), root="r0")
    assert error.metadata["chain"].startswith("r0 -> r1 -> ")
    assert len(error.message) < 1000


def test_limits_are_arguments():
    assert parse_gbnf('root ::= "a"{5000}', limits=GbnfLimits(repetition=5000))
    assert "limit of 10" in refusal('root ::= "a"{11}', limits=GbnfLimits(repetition=10)).message
    with pytest.raises(TooLarge):
        parse_gbnf('root ::= "a"', limits=GbnfLimits(source_characters=5))

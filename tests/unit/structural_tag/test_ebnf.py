"""XGrammar's EBNF inside structural tags."""

import pytest

from constraintd.errors import InvalidGrammar
from constraintd.grammar.structural_tag_ebnf import parse_ebnf
from tests.unit.structural_tag.walk import accepts, tag


def grammar(text):
    return tag({"type": "grammar", "grammar": text})


@pytest.mark.parametrize(
    ("text", "passing", "failing"),
    [
        ('root ::= "Hello!" n\n  n ::= [0-9] | [0-9] n', ["Hello!1", "Hello!123"], ["Hello!", "Hello!1a"]),
        ('root ::= "" | [-+*/]', ["", "-", "/"], ["--", "a"]),
        (r"root ::= [+\-]?[1-9][0-9]*", ["1", "-10", "+5"], ["", "0", "+-1"]),
        ('root ::= ("a" | "b"){2,3} "c"?  # comment', ["ab", "bbac"], ["a", "abab", "c"]),
        ("root ::= [^a-c\\n] .", ["dx", "é\n"], ["ax", "\nx", "d"]),
        ('root ::= "\\x41\\u00e9\\n"', ["Aé\n"], ["Aé"]),
        ('root ::= a-b.c\na-b.c ::= "x"', ["x"], [""]),
        ('root ::= root "a" | "b"', ["b", "baa"], ["", "ab"]),
        ('root ::= even\neven ::= "" | "a" odd\nodd ::= "a" even', ["", "aa", "aaaa"], ["a", "aaa"]),
        ('root ::= "[" (root ("," root)*)? "]"', ["[]", "[[],[[]]]"], ["[", "[,]", "[]]"]),
        ('root ::= "a" (root)? "b" | ""', ["", "ab", "aabb"], ["aab", "abab"]),
    ],
)
def test_a_grammar_takes_its_texts(text, passing, failing):
    compiled = grammar(text)
    for sample in passing:
        assert accepts(compiled, sample), sample
    for sample in failing:
        assert not accepts(compiled, sample), sample


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a ::= "x"', "no rule root"),
        ('root ::= "x"\nroot ::= "y"', "defined twice (line 2 column 1"),
        ("root ::= x", "the rule x is not defined (line 1 column 10"),
        ('root ::= "a" (= "b")', "look-ahead"),
        ('root ::= TagDispatch(("a", b))', "TagDispatch(...) is an XGrammar macro"),
        ('root ::= ("a"', "never closed"),
        ('root ::= "a")', "closes nothing"),
        ("root ::= *", "repeats nothing"),
        ('root ::= "a"{3,2}', "the lower one first"),
        ('root ::= "a"{5000}', "counts go up to 4096"),
        ("root ::= []", "empty character class"),
        ("root ::= [z-a]", "the range z-a is empty"),
        (r'root ::= "\q"', r"the escape \q is not known"),
        (r'root ::= "\ud800"', "is no character"),
        ('"a"', "a rule begins with"),
    ],
)
def test_a_grammar_is_refused_with_line_and_column(text, message):
    with pytest.raises(InvalidGrammar) as refused:
        parse_ebnf(text, "/format")
    assert message in refused.value.message
    assert refused.value.metadata["location"] == "/format"

"""What the constructs of GBNF match, read from masks."""

import json

import pytest

from constraintd.errors import InvalidGrammar, TokenNotAllowed
from tests.unit.pushdown.small_vocabulary import (
    AB,
    ENGINE,
    EOG,
    EOG_TEXT,
    EURO_HEAD,
    HOLE,
    NUL_TEXT,
    PADDING,
    THINK,
    TOOL,
    TOOL_TEXT,
    Reader,
    legal,
)


@pytest.mark.parametrize(
    ("grammar", "taken", "refused"),
    [
        # llama.cpp, tests/test-grammar-integration.cpp and test-grammar-parser.cpp (MIT)
        ('root ::= "a"*', ["", "a", "aaaa"], ["b", "ab", "ba"]),
        ('root ::= "a"+', ["a", "aaaa"], ["", "b", "ab"]),
        ('root ::= "a"?', ["", "a"], ["aa", "b"]),
        ("root ::= [ab]{4}", ["abab"], ["aba", "ababa"]),
        ("root ::= [ab]{4,}", ["abab", "ababab"], ["aba"]),
        ("root ::= [ab]{0,4}", ["", "abab"], ["ababa"]),
        ("root ::= ( [x]* )*", ["", "x", "xx"], ["y", "yy"]),
        (
            'root ::= ("0x" [A-F0-9]{2} " "?){3,5}',
            ["0xFF 0x12 0xAB", "0xFF0x120xAB", "0xFF 0x12 0xAB 0x00 0x00"],
            ["", "0xFF 0x12", "0xFF 0x12 0xAB 0x00 0x00 0x00"],
        ),
        ('root ::= ... "abc" ...', ["abcabcabc", "🔵🟠✅abc❌🟠🔵"], ["aaabcccc", "aaaaabcccc"]),
        (
            "root ::= cons+ vowel* cons? (vowel cons)*\nvowel ::= [aeiouy]\ncons ::= [bcdfghjklmnpqrstvwxyz]",
            ["yes", "no", "noyes", "crwth", "four", "bryyyy"],
            ["yess", "yesno", "forty", "catyyy"],
        ),
        # our own
        ('root ::= "a"{0}', [""], ["a"]),
        ('root ::= ("a" | "bc"){2,3}', ["aa", "abc", "bcbca"], ["a", "bc", "aaaa", "ab"]),
        ('root ::= ("a"{2}){2,}', ["aaaa", "aaaaaa"], ["aa", "aaaaa"]),
        ('root ::= "ab" ("c" | ) | "abd"', ["ab", "abc", "abd"], ["abcd", "abe"]),
        ('root ::= list\nlist ::= "x" ("," list)?', ["x", "x,x,x"], ["x,", ",x"]),
        ('root ::= nest\nnest ::= "(" nest ")" | ""', ["", "()", "((()))"], ["(", "())", "(()"]),
        ("root ::= [^a-y]", ["z", "é", "😀", "\n"], ["a", "m", "zz"]),
        (r"root ::= [\x00-\x1f\-\]]+", ["\t\n-]"], ["[", " "]),
        (".".join(["root ::= ", ""]), ["\n", "€"], ["", "ab"]),
        (r'root ::= "\u00e9" [à-ÿ]', ["éé", "éà"], ["e\u0301", "éa"]),
        # xgrammar, tests/python/test_grammar_matcher_ebnf.py (Apache-2.0): a trailing option may recurse to the left
        ("root ::= a [0-9]?\na ::= b [0-9]? | a [0-9]?\nb ::= a [0-9]? | [x]?", ["", "0", "x123456"], ["xx", "0x"]),
    ],
)
def test_texts(grammar, taken, refused):
    reader = Reader(grammar)
    assert [text for text in taken if not reader.accepts(text)] == []
    assert [text for text in refused if reader.accepts(text)] == []


def test_a_longer_token_is_legal_where_its_bytes_are():
    reader = Reader('root ::= "ab" "c"? | "x"')
    assert legal(reader.after()) == {ord("a"), ord("x"), AB}
    assert legal(reader.after(AB)) == {ord("c"), EOG, EOG_TEXT}
    assert reader.accepts(AB, "c")


@pytest.mark.parametrize("text", ["é", "€", "😀", "é€😀é"])
def test_a_character_may_be_cut_at_every_byte(text):
    reader = Reader("root ::= [é€😀]+")
    data = text.encode()
    matcher = reader.grammar.start()
    for at, byte in enumerate(data):
        assert matcher.is_accepting() == (at > 0 and at in {len(text[:n].encode()) for n in range(len(text) + 1)})
        assert byte in legal(matcher)
        matcher.consume(byte)
    assert matcher.is_accepting()


def test_an_unfinished_character_goes_on_only_to_what_it_may_become():
    reader = Reader("root ::= [€-₯]")  # U+20AC to U+20AF: e2 82 ac to e2 82 af
    assert legal(reader.after()) == {0xE2}
    matcher = reader.grammar.start()
    matcher.consume(0xE2)
    assert legal(matcher) == {0x82}
    matcher.consume(0x82)
    assert legal(matcher) == {0xAC, 0xAD, 0xAE, 0xAF}


def test_a_token_may_end_inside_a_character():
    reader = Reader('root ::= "a€"')
    assert legal(reader.after()) == {ord("a"), EURO_HEAD}
    matcher = reader.after(EURO_HEAD)
    assert not matcher.is_accepting()
    assert legal(matcher) == {0xAC}


def test_bytes_that_are_no_utf8_are_never_legal():
    assert legal(Reader("root ::= .").after()) & {0, 0x80, 0xBF, 0xC0, 0xC1, *range(0xF5, 0x100)} == set()


def test_text_never_matches_a_special_token_and_never_eog_with_text():
    assert legal(Reader('root ::= "<tool>"').after()) == {ord("<")}
    assert legal(Reader('root ::= "<end>"').after()) == {ord("<")}
    assert EOG_TEXT in legal(Reader('root ::= "<end>"?').after())


def test_text_that_begins_with_nul_is_always_masked():
    assert {0, NUL_TEXT} & legal(Reader("root ::= .*").after()) == set()
    assert {0, NUL_TEXT} & legal(Reader("root ::= (!<tool>)*").after()) == set()


def test_a_token_element_takes_that_token_and_not_its_text():
    reader = Reader("root ::= <tool> <[258]> <text>")
    assert legal(reader.after()) == {TOOL}
    assert legal(reader.after(TOOL)) == {THINK}
    assert legal(reader.after(TOOL, THINK)) == {TOOL_TEXT}
    assert reader.accepts(TOOL, THINK, TOOL_TEXT)


def test_a_negated_element_takes_every_other_real_token_and_never_eog():
    reader = Reader("root ::= !<tool> <tool>")
    everything = set(range(1, 256)) | {THINK, AB, EURO_HEAD, TOOL_TEXT}
    assert legal(reader.after()) == everything
    assert {HOLE, PADDING, TOOL, EOG, NUL_TEXT, 0} & everything == set()
    assert reader.accepts(AB, TOOL)
    assert not reader.accepts(TOOL, TOOL)


def test_negating_eog_is_any_token():
    assert TOOL in legal(Reader("root ::= !</s>").after())


def test_a_token_is_read_in_both_ways_where_text_and_element_allow_it():
    reader = Reader('root ::= <[261]> "x" | "ab" "y"')
    assert legal(reader.after(AB)) == {ord("x"), ord("y")}
    assert legal(reader.after("ab")) == {ord("y")}


def test_a_token_element_matches_only_at_a_tokens_start():
    reader = Reader('root ::= "a" <[98]>')
    assert AB not in legal(reader.after())
    assert reader.accepts("a", 98)


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("root ::= <[9999]>", "1:10"),
        ("root ::= <[259]>", "1:10"),
        ("root ::= <nothing>", "1:10"),
        ('root ::= "a"\nunused ::= !<nothing>', "2:12"),
        ("root ::= </s>", "1:10"),
        ("root ::= <end>", "1:10"),
        ("root ::= <[0]>", "1:10"),
    ],
)
def test_an_element_that_names_no_token_that_a_text_can_hold_is_refused(text, location):
    with pytest.raises(InvalidGrammar) as caught:
        Reader(text)
    assert caught.value.metadata["location"] == location


@pytest.mark.parametrize(
    "text",
    [
        'root ::= (("a"?)*)*',
        'root ::= ("" | "a")+',
        'root ::= e* "a"* e+\ne ::= "" | f\nf ::= e2*\ne2 ::= ""?',
        'root ::= (("a"* | "b"*)* | "")*',
        'root ::= x\nx ::= "a" x y | ""\ny ::= ""',
    ],
)
def test_nullable_loops_end(text):
    assert Reader(text).accepts("aaaa")
    assert Reader(text).accepts("")


def test_ten_thousand_open_brackets_are_read_and_closed():
    reader = Reader('root ::= value\nvalue ::= "[" (value ("," value)*)? "]"')
    matcher = reader.grammar.start()
    assert matcher.consume_bytes(b"[" * 10_000)
    assert legal(matcher) == {ord("["), ord("]")}
    assert matcher.consume_bytes(b"]" * 9_999)
    assert not matcher.is_accepting()
    assert matcher.consume_bytes(b"]")
    assert matcher.is_exhausted()


def test_right_recursion_takes_no_depth():
    reader = Reader('root ::= "a" root | "b"')
    matcher = reader.grammar.start()
    matcher.consume_bytes(b"a" * 10_000)
    assert reader.grammar.statistics().cells == 1
    assert reader.grammar.statistics().states < 6


def test_a_choice_of_many_words_waits_in_few_places():
    words = [f"word{number}" for number in range(2_000)]
    reader = Reader("root ::= " + " | ".join(map(json.dumps, words)))
    assert reader.accepts("word1999")
    assert not reader.accepts("word2000")
    assert reader.grammar.statistics().stacks < 300


def test_an_illegal_token_is_refused_and_leaves_the_place():
    reader = Reader('root ::= "ab"')
    matcher = reader.after("a")
    for token in (ord("x"), AB, TOOL, EOG, EOG_TEXT, HOLE, PADDING, 10**6):
        with pytest.raises(TokenNotAllowed):
            matcher.consume(token)
    assert legal(matcher) == {ord("b")}


def test_refused_bytes_leave_the_place():
    matcher = Reader('root ::= "abc"').grammar.start()
    assert not matcher.consume_bytes(b"abx")
    assert matcher.consume_bytes(b"")
    assert matcher.consume_bytes(b"ab")
    assert legal(matcher) == {ord("c")}


def test_exhausted_is_complete_and_nothing_can_follow():
    assert Reader('root ::= "a"').after("a").is_exhausted()
    assert not Reader('root ::= "a"+').after("a").is_exhausted()
    assert not Reader('root ::= "a" <tool>?').after("a").is_exhausted()
    assert not Reader('root ::= "a"').after().is_exhausted()


def test_a_fork_goes_its_own_way():
    one = Reader('root ::= "a" ("b" | "c")').after("a")
    other = one.fork()
    one.consume(ord("b"))
    assert legal(other) == {ord("b"), ord("c")}
    assert one.is_exhausted()


def test_a_grammar_that_no_token_can_begin_is_refused():
    with pytest.raises(InvalidGrammar, match="no token of the vocabulary can begin"):
        Reader(r'root ::= "\x00a"')


def test_another_root_can_be_named():
    assert Reader('a ::= "x"\nb ::= a "y"', root="b").accepts("xy")


def test_the_grammar_names_itself_and_its_vocabulary():
    grammar = Reader('root ::= "a"').grammar
    assert grammar.grammar_id == "ab" * 32
    assert grammar.vocabulary_id == ENGINE.vocabulary.fingerprint
    assert grammar.byte_size() > 0

"""Random patterns of safe and unsafe constructs: either refused, or the engine's verdicts are the dialect's own.

The oracle is `re.fullmatch`.
"""

from __future__ import annotations

import re
import warnings
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from constraintd.errors import InvalidGrammar
from constraintd.grammar.regex_meaning import check_python_pattern
from tests.unit.regex.byte_walk import matcher_of, takes

PYTHON_ATOMS = [
    "a", "b", "ab", "é", "İ", "ß", "-", "{", "}", "]", " ", "#", "/", "&", "~", "0", "\n", "{,2", "{}", "a{,}", ".",
    "^", "$", "\\A", "\\Z", "\\b", "\\B", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\1", "\\012", "\\101", "\\08",
    "\\x41", "\\u00e9", "\\U0001F600", "\\N{DIGIT ONE}", "\\n", "\\/", "\\-", "\\.", "\\e", "\\z", "\\p{L}", "\\_",
    "\\ud800", "[ab]", "[^a]", "[a-c]", "[\\w-]", "[]a]", "[^]a]", "[[]", "[a[]", "[a-z&&[^a]]", "[[:alpha:]]",
    "[a--b]", "[+--]", "[\\W\\d]", "[^\\S]", "[\\b]", "[a~~b]", "[a||b]", "[\\1]", "[b-a]", "[\\d-a]", "[--a]",
    "[é-ü]", "[\\n]", "[.]", "[^\\n]", "(?=a)", "(?!b)", "(?<=a)", "(?>a)", "(?R)", "(?P=n)", "(?P<n>a)", "(?<n>a)",
    "(?#c)", "(?i)", "(?x)", "(?s)", "(?m)", "(?a)", "(?u)", "(?(1)a|b)", "()", "(?:)", "(|a)", "(^|a)", "(a|$)",
    "(?:^a)", "(?:b$)",
]  # fmt: skip
PYTHON_OPENINGS = ["(", "(?:", "(?i:", "(?-i:", "(?s:", "(?x:", "(?a:", "(?P<m>", "(?s-i:", "(?m:", "(?m-x:"]


QUANTIFIERS = [
    "*",
    "+",
    "?",
    "{2}",
    "{1,}",
    "{0}",
    "{1,2}",
    "*?",
    "+?",
    "??",
    "*+",
    "++",
    "**",
    "{2,1}",
    "{,2}",
    "{,2}?",
]
TEXTS = ["".join(text) for length in range(4) for text in product("abA", repeat=length)] + [
    "\n", "a\n", "\na", "-", "--", "a-", "0", "00", "1", "_", " ", "a b", "#", "é", "É", "éé", "İ", "i", "ß", "ẞ",
    "{", "a{", "{,2", "a{,2", "{}", "}", "]", "a]", "[", "/", "&", "~", ".", "\x08", "\0", "\xa0", "\u2028", "\ufeff",
    "\x1c", "\r", "\U0001f600", "a\U0001f600", "A", "٣", "²", "\u0301", "xa", "ax", "xax", "aab b", "bab", "a1", "B",
    ",",
]  # fmt: skip


def patterns(atoms, openings):
    """Strategy of pairs of spellings."""

    def joined(pairs, between=""):
        return tuple(None if None in side else between.join(side) for side in zip(*pairs, strict=True))

    def quantified(pair, quantifier):
        return (pair[0] + quantifier, None if pair[1] is None else pair[1] + quantifier)

    def grouped(opening, pairs):
        inner = joined(pairs, "|")
        return (f"{opening[0]}{inner[0]})", None if inner[1] is None else f"{opening[1]}{inner[1]})")

    pieces = st.recursive(
        st.sampled_from(atoms),
        lambda inner: st.one_of(
            st.builds(quantified, inner, st.sampled_from(QUANTIFIERS)),
            st.lists(inner, min_size=1, max_size=4).map(joined),
            st.builds(grouped, st.sampled_from(openings), st.lists(inner, min_size=1, max_size=3)),
        ),
        max_leaves=8,
    )
    return st.lists(pieces, min_size=1, max_size=3).map(lambda pairs: joined(pairs, "|"))


def compiled_by_python(pattern):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(pattern)
        except (re.error, ValueError, OverflowError):
            return None


@pytest.mark.timeout(600)
@settings(max_examples=300, deadline=None)
@given(patterns([(atom, atom) for atom in PYTHON_ATOMS], [(opening, opening) for opening in PYTHON_OPENINGS]))
@example(("((0x)?[a-f]+)", "((0x)?[a-f]+)"))
def test_a_python_pattern_is_refused_or_means_what_fullmatch_means(pair):
    pattern = pair[0]
    expected = compiled_by_python(pattern)
    try:
        rewritten = check_python_pattern(pattern)
    except InvalidGrammar as refusal:
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", refusal.metadata["location"])
        return
    assert expected is not None, "taken, but Python refuses it"
    matcher = matcher_of(rewritten)
    for text in TEXTS:
        assert takes(matcher, text) == (expected.fullmatch(text) is not None), (rewritten, text)

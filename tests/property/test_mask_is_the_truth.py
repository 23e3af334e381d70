"""The mask is the truth: at every position of random grammars and texts, a token is accepted iff its bit was set.

What a bit ought to be is worked out here without the engine: for choices by prefixes, for regular expressions by
Brzozowski derivatives (J. ACM 11, 1964). What is accepted is what a session takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.errors import SessionFinished, TokenNotAllowed
from constraintd.grammar.source import GrammarKind, parse_grammar
from constraintd.sampler.finish import Finish
from constraintd.session.directive import DenseMask
from constraintd.session.session import Session
from constraintd.vocabulary.token_table import TokenEntry, TokenKind, from_table
from tests.plain_daemon import grammar_part, plain_session

ALPHABET = "abc"
# Every text of one and two letters, some longer ones, one twice, one special that spells a text, EOG, a hole.
TOKENS = [
    *ALPHABET,
    *[x + y for x in ALPHABET for y in ALPHABET],
    "abc",
    "cab",
    "aaaa",
    "a",
]
SPECIAL, EOG, HOLE = len(TOKENS), len(TOKENS) + 1, len(TOKENS) + 2
VOCABULARY = from_table(
    [
        *[TokenEntry(i, TokenKind.TEXT, text.encode()) for i, text in enumerate(TOKENS)],
        TokenEntry(SPECIAL, TokenKind.SPECIAL, b"ab"),
        TokenEntry(EOG, TokenKind.SPECIAL, b"</s>"),
        TokenEntry(HOLE, TokenKind.UNUSED, b""),
    ],
    eog_ids=[EOG],
    logits_width=40,
)
ENGINE = LlguidanceEngine(VOCABULARY)


@dataclass(frozen=True)
class Regex:
    """A regular expression by its kind: never, empty, letters, then, either, star."""

    kind: str
    letters: str = ""
    parts: tuple[Regex, ...] = ()

    def pattern(self) -> str:
        if self.kind == "letters":
            return self.letters if len(self.letters) == 1 else f"[{self.letters}]"
        inner = [part.pattern() for part in self.parts]
        if self.kind == "then":
            return f"({inner[0]})({inner[1]})"
        return f"({'|'.join(inner)})" if self.kind == "either" else f"({inner[0]})*"

    def nullable(self) -> bool:
        if self.kind == "then":
            return all(part.nullable() for part in self.parts)
        if self.kind == "either":
            return any(part.nullable() for part in self.parts)
        return self.kind in ("empty", "star")

    def after(self, letter: str) -> Regex:
        if self.kind == "letters":
            return EMPTY if letter in self.letters else NEVER
        if self.kind == "then":
            first, second = self.parts
            rest = then(first.after(letter), second)
            return either(rest, second.after(letter)) if first.nullable() else rest
        if self.kind == "either":
            return reduce(either, (part.after(letter) for part in self.parts))
        return then(self.parts[0].after(letter), self) if self.kind == "star" else NEVER


NEVER, EMPTY = Regex("never"), Regex("empty")


def then(first: Regex, second: Regex) -> Regex:
    if NEVER in (first, second):
        return NEVER
    if first == EMPTY:
        return second
    return first if second == EMPTY else Regex("then", parts=(first, second))


def either(first: Regex, second: Regex) -> Regex:
    # Each alternative once: without that, derivatives of nested stars grow without bound (Brzozowski 1964).
    found = [part for each in (first, second) for part in (each.parts if each.kind == "either" else (each,))]
    parts = tuple(dict.fromkeys(part for part in found if part != NEVER))
    return parts[0] if len(parts) == 1 else Regex("either", parts=parts) if parts else NEVER


letters = st.sets(st.sampled_from(ALPHABET), min_size=1).map(lambda s: Regex("letters", letters="".join(sorted(s))))
regexes = st.recursive(
    letters,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: Regex("then", parts=p)),
        st.tuples(inner, inner).map(lambda p: Regex("either", parts=p)),
        inner.map(lambda p: Regex("star", parts=(p,))),
    ),
    max_leaves=8,
)
choices = st.lists(st.text(ALPHABET, min_size=1, max_size=9), min_size=1, max_size=8, unique=True)
walks = st.lists(st.integers(0, 10**6), max_size=10)


def session_of(kind: GrammarKind, *texts: str) -> Session:
    grammar = ENGINE.compile(parse_grammar(kind, [text.encode() for text in texts], max_bytes=10_000))
    return plain_session([grammar_part("the grammar", grammar)], VOCABULARY, max_tokens=1000)


def check_every_token(session: Session, expected: set[int]) -> None:
    """The mask holds exactly `expected`, and exactly those are accepted: all others leave the session as it is."""
    before = session.directive
    assert isinstance(before.outcome, DenseMask)
    assert {token for token in range(64) if before.outcome.allows(token)} == expected
    for token in [*range(41), 63, 64, 10**6]:
        if token in expected:
            continue
        with pytest.raises(TokenNotAllowed):
            session.step(session.epoch, session.position, [token], [0.0])
        assert session.directive is before
        # An illegal token behind a legal one takes the whole step down, and names its place. Where the legal one
        # already finishes the session, nothing may follow it.
    for token in expected:
        with pytest.raises((TokenNotAllowed, SessionFinished)) as caught:
            session.step(session.epoch, session.position, [token, HOLE], [0.0, 0.0])
        assert caught.value.illegal_index == 1
        assert session.directive is before


@given(regexes, walks)
@settings(max_examples=120, deadline=None)
def test_a_token_is_accepted_iff_its_bit_was_set_in_a_random_regex(regex, walk):
    session = session_of(GrammarKind.REGEX, regex.pattern())
    here = regex
    for number in walk:
        if isinstance(session.directive.outcome, Finish):
            break
        places = {}
        for token, text in enumerate(TOKENS):
            place = here
            for letter in text:
                place = place.after(letter)
            if place != NEVER:
                places[token] = place
        check_every_token(session, set(places) | ({EOG} if here.nullable() else set()))
        token = sorted(places)[number % len(places)]
        session.step(session.epoch, session.position, [token], [0.0])
        here = places[token]


@given(choices, walks)
@settings(max_examples=120, deadline=None)
def test_a_token_is_accepted_iff_its_bit_was_set_in_a_random_choice(texts, walk):
    session = session_of(GrammarKind.CHOICE, *texts)
    prefix = ""
    for number in walk:
        ways = [token for token, piece in enumerate(TOKENS) if any(text.startswith(prefix + piece) for text in texts)]
        if not ways:
            assert isinstance(session.directive.outcome, Finish)
            assert prefix in texts
            break
        check_every_token(session, set(ways) | ({EOG} if prefix in texts else set()))
        token = ways[number % len(ways)]
        session.step(session.epoch, session.position, [token], [0.0])
        prefix += TOKENS[token]


@given(regexes, walks)
@settings(max_examples=60, deadline=None)
def test_one_long_step_gives_what_single_steps_give(regex, walk):
    one, many = session_of(GrammarKind.REGEX, regex.pattern()), session_of(GrammarKind.REGEX, regex.pattern())
    taken = []
    for number in walk:
        outcome = one.directive.outcome
        if isinstance(outcome, Finish):
            break
        token_ids = [token for token in range(40) if outcome.allows(token)]
        taken.append(token_ids[number % len(token_ids)])
        one.step(one.epoch, one.position, taken[-1:], [0.0])
    if taken:
        directive = many.step(many.epoch, 0, taken, [0.0] * len(taken))
        assert (directive.position, directive.outcome, directive.settled_bytes) == (
            one.directive.position,
            one.directive.outcome,
            one.directive.settled_bytes,
        )

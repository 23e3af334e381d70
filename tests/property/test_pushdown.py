"""The pushdown engine's masks equal a byte-by-byte brute force, on random grammars, places and vocabularies.

The reference shares nothing with the engine but the meaning of GBNF: it reads a tree of its own (the text is printed
from that tree), keeps plain tuples as stacks, reads whole characters, and asks of an unfinished one whether any code
point that it can still become is taken. Every token of the vocabulary is tried on its own.

`CONSTRAINTD_PUSHDOWN_PAIRS` sets how many (grammar, place) pairs are compared, and `CONSTRAINTD_PUSHDOWN_WIDE` how many
places on 131,072 tokens: 300 and 3 by default; 10,000 and 20 are the project's bar.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from benchmarks.pushdown import JSON_GRAMMAR, generated_texts, tekken
from constraintd.engine.pushdown import PushdownEngine
from constraintd.engine.pushdown_limits import AutomatonLimits, PushdownLimits
from constraintd.errors import InvalidGrammar, LimitExceeded
from constraintd.grammar.gbnf import parse_gbnf
from constraintd.mask.packed import empty, ids
from constraintd.vocabulary.vocabulary import Vocabulary, build_vocabulary
from tests.unit.pushdown.brute_force import BruteForce, Part, Place, TooWide, trees_of

PAIRS = int(os.environ.get("CONSTRAINTD_PUSHDOWN_PAIRS", "300"))
WIDE = int(os.environ.get("CONSTRAINTD_PUSHDOWN_WIDE", "3"))
PAIRS_A_SEED = 10
# Random grammars may be very ambiguous, and the machine busy: here only the answer counts.
LIMITS = PushdownLimits(automaton=AutomatonLimits(states=400_000, stacks=10_000_000, step_seconds=60))
LETTERS = 'ab0 \n"é€日😀\x7f'


class RandomGrammar:
    """A random grammar as trees by rule. References go to later rules, or stand behind a text: no left recursion."""

    def __init__(self, draw: random.Random, specials: list[int]) -> None:
        self.draw = draw
        self.specials = specials
        self.count = draw.randint(1, 4)
        self.bodies: list[Part] = [self._alternatives(index, 3) for index in range(self.count)]

    def source(self) -> str:
        return "\n".join(f"{self._name(i)} ::= {self._print(body)}" for i, body in enumerate(self.bodies))

    def _name(self, index: int) -> str:
        return "root" if index == 0 else f"r-{index}_x"

    def _alternatives(self, rule: int, depth: int) -> Part:
        return Part("alt", [self._sequence(rule, depth) for _ in range(self.draw.randint(1, 3))])

    def _sequence(self, rule: int, depth: int) -> Part:
        parts: list[Part] = []
        guarded = False
        for _ in range(self.draw.choice([0, 1, 1, 2, 2, 3])):
            part = self._term(rule, depth, guarded=guarded)
            guarded = guarded or part.kind in ("text", "class", "any", "token")
            parts.append(part)
        return Part("seq", parts)

    def _term(self, rule: int, depth: int, *, guarded: bool) -> Part:
        part = self._element(rule, depth, guarded=guarded)
        if self.draw.random() < 0.35:
            low = self.draw.randint(0, 2)
            bounds = self.draw.choice([(0, None), (1, None), (0, 1), (low, low + self.draw.randint(0, 3)), (low, None)])
            return Part("repeat", [part], least=bounds[0], most=bounds[1])
        return part

    def _element(self, rule: int, depth: int, *, guarded: bool) -> Part:
        draw = self.draw
        kind = draw.choice(["text", "text", "class", "class", "any", "alt", "alt", "ref", "ref", "token"])
        if kind == "alt" and depth > 0:
            return self._alternatives(rule, depth - 1)
        if kind == "ref":
            targets = range(self.count) if guarded else range(rule + 1, self.count)
            if targets:
                return Part("ref", least=draw.choice(targets))
        if kind == "any":
            return Part("any", negated=True)
        if kind == "token" and self.specials and draw.random() < 0.5:
            return Part("token", token=draw.choice(self.specials), negated=draw.random() < 0.4)
        if kind == "class":
            ranges = []
            for _ in range(draw.randint(1, 3)):
                low, high = sorted(draw.choice([LETTERS, "az", "\u0080\u07ff\u0800\uffff"])[0:1] + draw.choice(LETTERS))
                ranges.append((low, high if draw.random() < 0.5 else low))
            return Part("class", ranges=ranges, negated=draw.random() < 0.4)
        return Part("text", text="".join(draw.choice(LETTERS) for _ in range(draw.randint(1, 3))))

    def _print(self, part: Part) -> str:
        if part.kind == "alt":
            return " | ".join(self._print(each) for each in part.parts)
        if part.kind == "seq":
            return " ".join(self._group(each) for each in part.parts) or '""'
        if part.kind == "repeat":
            bounds = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((part.least, part.most))
            most = "" if part.most is None else part.most
            return self._group(part.parts[0]) + (bounds or f"{{{part.least},{most}}}")
        if part.kind == "ref":
            return self._name(part.least)
        if part.kind == "any":
            return "."
        if part.kind == "token":
            return f"{'!' if part.negated else ''}<[{part.token}]>"
        if part.kind == "class":
            inner = "".join(escape(low) + "-" + escape(high) for low, high in part.ranges)
            return f"[{'^' if part.negated else ''}{inner}]"
        return '"' + "".join(map(escape, part.text)) + '"'

    def _group(self, part: Part) -> str:
        return f"({self._print(part)})" if part.kind in ("alt", "seq") else self._print(part)


def escape(character: str) -> str:
    return f"\\U{ord(character):08x}"


def random_vocabulary(draw: random.Random) -> Vocabulary:
    """Up to 2,000 tokens: bytes (some missing), cut and whole characters, texts, duplicates, specials, NUL, holes."""
    table = [bytes([byte]) for byte in range(256) if draw.random() < 0.95]
    size = draw.choice([300, 500, 1000, 1990])
    while len(table) < size:
        text = "".join(draw.choice(LETTERS) for _ in range(draw.choice([1, 1, 2, 2, 3, 4, 6, 9]))).encode()
        begin = draw.randint(0, 2) if draw.random() < 0.2 else 0
        end = len(text) - (draw.randint(0, 2) if draw.random() < 0.2 else 0)
        table.append(text[begin:end])
    table += [b"\0a", b"ab"]
    draw.shuffle(table)
    special = {len(table) + number: f"<s{number}>" for number in range(4)}
    return build_vocabulary(table, special, eog_ids=[len(table), draw.randrange(len(table))])


def places(draw: random.Random, brute: BruteForce) -> Iterator[tuple[list[int], Place, set[int]]]:
    """A random walk: the tokens so far, the place behind them, the tokens that are legal there."""
    taken: list[int] = []
    place = brute.start()
    while True:
        legal = brute.legal(place)
        yield taken, place, legal
        ways = sorted(legal - set(brute.vocabulary.eog_ids))
        if not ways:
            return
        token = draw.choice(ways)
        following = brute.after(place, token)
        assert following is not None
        place = following
        taken = [*taken, token]


@pytest.mark.parametrize("seed", range(max(1, PAIRS // PAIRS_A_SEED)))
def test_masks_equal_the_brute_force(seed):
    draw = random.Random(seed)
    vocabulary = random_vocabulary(draw)
    engine = PushdownEngine(vocabulary)
    specials = [token for token in vocabulary.special if token not in vocabulary.eog_ids]
    words = empty(vocabulary.logits_width)
    compared = 0
    while compared < PAIRS_A_SEED:
        tree = RandomGrammar(draw, specials)
        brute = BruteForce(tree.bodies, vocabulary)
        try:
            grammar = engine.compile("00" * 32, tree.source(), limits=LIMITS)
            for tokens, _, expected in places(draw, brute):
                matcher = grammar.start()
                for token in tokens:
                    matcher.consume(token)
                matcher.fill_mask(words)
                found = set(ids(words).tolist())
                assert found == expected, (tree.source(), tokens, found ^ expected)
                assert grammar.at(matcher.place()).place() == matcher.place()
                compared += 1
                if len(tokens) >= 5 or compared >= PAIRS_A_SEED:
                    break
        except InvalidGrammar as error:
            assert "matches no character" in error.message or "can begin" in error.message, tree.source()
        except (LimitExceeded, TooWide):  # exponentially ambiguous: another grammar is drawn
            continue


def test_masks_equal_the_brute_force_on_131072_tokens():
    vocabulary = tekken()
    grammar = PushdownEngine(vocabulary).compile("00" * 32, JSON_GRAMMAR)
    brute = BruteForce(trees_of(parse_gbnf(JSON_GRAMMAR)), vocabulary)
    draw = random.Random(7)
    words = empty(vocabulary.logits_width)
    for number in range(WIDE):
        text = draw.choice(generated_texts()).encode()
        text = text[: draw.randrange(len(text))] if number else b""
        matcher = grammar.start()
        assert matcher.consume_bytes(text)
        place: Place | None = brute.start()
        for byte in text:
            assert place is not None
            place = brute.step(place, byte)
        assert place is not None
        matcher.fill_mask(words)
        assert set(ids(words).tolist()) == brute.legal(place), text

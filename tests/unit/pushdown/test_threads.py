"""Many sessions of one grammar in many threads read what one thread reads."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.unit.pushdown.small_vocabulary import Reader, legal

GRAMMAR = 'root ::= v\nv ::= "[" (v ("," v)*)? "]" | "\\"" [^"\\\\]{0,9} "\\"" | [0-9]+ ("." [0-9]+)?'


def walk(grammar, seed):
    draw = random.Random(seed)
    matcher = grammar.start()
    seen = []
    for _ in range(60):
        here = legal(matcher)
        seen.append((matcher.place(), frozenset(here)))
        texts = sorted(token for token in here if token < 128)
        if not texts:
            break
        matcher.consume(draw.choice(texts))
    return seen


def test_sessions_in_eight_threads_read_what_one_reads():
    expected = [walk(Reader(GRAMMAR).grammar, seed) for seed in range(40)]
    shared = Reader(GRAMMAR).grammar
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda seed: walk(shared, seed), range(40)))
    finally:
        sys.setswitchinterval(interval)
    assert found == expected


def test_sessions_go_on_while_others_make_the_grammar_forget():
    expected = [walk(Reader(GRAMMAR).grammar, seed) for seed in range(20)]
    shared = Reader(GRAMMAR).grammar
    with ThreadPoolExecutor(5) as pool:
        walks = [pool.submit(walk, shared, seed) for seed in range(20)]
        for _ in range(20):
            shared.forget()
        assert [each.result() for each in walks] == expected

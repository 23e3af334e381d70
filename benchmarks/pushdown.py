"""Cold and warm masks of the pushdown engine on a JSON grammar and a vocabulary of 131,072 tokens.

The vocabulary is the tekken file that mistral-common installs. The grammar takes the same texts as llama.cpp's
`grammars/json.gbnf` (MIT). The corpus is generated here from a fixed seed; each text is cut into the longest tokens
that fit. Every run starts with no state, row or mask; a mask is cold the first time that a run meets its state.
`cold_cpu_ms_max` leaves out what other processes took.
"""

from __future__ import annotations

import argparse
import base64
import gc
import json
import random
import statistics
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

from benchmarks.form import Progress, Result
from constraintd.engine.pushdown import PushdownEngine, PushdownGrammar
from constraintd.mask.packed import empty, has
from constraintd.vocabulary.vocabulary import Vocabulary, build_vocabulary

NAME = "pushdown"
SUMMARY = "GBNF masks over 131,072 tokens: first time and again"

RUNS = 5
JSON_GRAMMAR = r"""
root    ::= object
value   ::= object | array | string | number | ("true" | "false" | "null") blank
object  ::= "{" blank (member ("," blank member)*)? "}" blank
member  ::= string ":" blank value
array   ::= "[" blank (value ("," blank value)*)? "]" blank
string  ::= "\"" (plain | "\\" escape)* "\"" blank
plain   ::= [^"\\\x7F\x00-\x1F]
escape  ::= ["\\bfnrt] | "u" [0-9a-fA-F]{4}
number  ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? blank
blank   ::= | " " | "\n" [ \t]{0,20}
"""

_WORDS = tuple(
    "id name value items total price city Zürich 東京 emoji 😀 user email tags status active count data result "  # noqa: SIM905
    "message error description created_at latitude url https://example.org/a?b=c children parent options ratio".split()
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The texts to walk."""
    parser.add_argument(
        "--texts", type=Path, metavar="FILE", help="a text a line, as it is or as one JSON string (default: generated)"
    )


def run(progress: Progress, *, texts: Path | None = None) -> Result:
    """Milliseconds of cold masks, microseconds of warm ones."""
    vocabulary = tekken()
    engine = PushdownEngine(vocabulary)
    corpus = generated_texts() if texts is None else _texts_of(texts)
    by_length = _Longest(vocabulary)
    tokens = [by_length.cut(text.encode()) for text in corpus]
    grammar = engine.compile("json", JSON_GRAMMAR)
    gc.freeze()  # as the daemon does once a vocabulary is in: the collector has no reason to walk it again
    cold_ms: list[float] = []
    cold_cpu_ms: list[float] = []
    warm_us: list[float] = []
    distinct: list[int] = []
    refused = 0
    for number in range(RUNS):
        progress("runs", number, RUNS)
        grammar.forget()
        states, refused = _walk(grammar, vocabulary, tokens, cold_ms, cold_cpu_ms, warm_us)
        distinct.append(states)
    progress("runs", RUNS, RUNS)
    figures = {
        "cold_ms_p50": statistics.median(cold_ms),
        "cold_ms_max": max(cold_ms),
        "cold_cpu_ms_max": max(cold_cpu_ms),
        "warm_us_p50": statistics.median(warm_us),
        "distinct_states": float(min(distinct)),
        "texts": float(len(tokens)),
        "texts_refused": float(refused),
        "trie_nodes": float(engine.trie.node_count),
        "grammar_mb": grammar.byte_size() / 1e6,
    }
    return Result(figures, {"cold_ms": cold_ms, "cold_cpu_ms": cold_cpu_ms, "warm_us": warm_us})


def _walk(
    grammar: PushdownGrammar,
    vocabulary: Vocabulary,
    texts: list[list[int]],
    cold_ms: list[float],
    cold_cpu_ms: list[float],
    warm_us: list[float],
) -> tuple[int, int]:
    """All texts from fresh caches: distinct states met, and texts that the grammar refused."""
    words = empty(vocabulary.logits_width)
    met: set[bytes] = set()
    refused = 0
    for text in texts:
        matcher = grammar.start()
        for token in [*text, None]:
            place = matcher.place()
            began_cpu = time.thread_time()
            began = time.perf_counter()
            matcher.fill_mask(words)
            took = time.perf_counter() - began
            took_cpu = time.thread_time() - began_cpu
            if place in met:
                warm_us.append(took * 1e6)
            else:
                met.add(place)
                cold_ms.append(took * 1e3)
                cold_cpu_ms.append(took_cpu * 1e3)
            if token is None or not has(words, token):
                refused += token is not None or not matcher.is_accepting()
                break
            matcher.consume(token)
    return len(met), refused


def generated_texts(count: int = 20, seed: int = 20260901) -> list[str]:
    """JSON objects of many shapes, indented and not; the same on every machine."""
    draw = random.Random(seed)
    documents = [_object(draw, depth=draw.randint(1, 7)) for _ in range(count)]
    return [json.dumps(each, indent=draw.choice([None, 1, 2]), ensure_ascii=draw.random() < 0.2) for each in documents]


def _object(draw: random.Random, depth: int) -> dict[str, Any]:
    return {_phrase(draw, 1): _value(draw, depth - 1) for _ in range(draw.randint(1, 4))}


def _value(draw: random.Random, depth: int) -> Any:
    if depth > 0 and draw.random() < 0.7:
        if draw.random() < 0.5:
            return _object(draw, depth)
        return [_value(draw, depth - 1) for _ in range(draw.randint(0, 3))]
    scalars: list[Any] = [
        draw.randint(-(10**9), 10**9),
        round(draw.uniform(-1000, 1000), 3),
        draw.random() < 0.5,
        None,
        _phrase(draw, 6),
        'a "quoted" \\ path\n\twith\u0007 controls',
    ]
    return draw.choice(scalars)


def _phrase(draw: random.Random, most: int) -> str:
    return " ".join(draw.choice(_WORDS) for _ in range(draw.randint(1, most)))


def _texts_of(path: Path) -> list[str]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [json.loads(line) if line.startswith('"') else line for line in lines]


def tekken() -> Vocabulary:
    """The 131,072 tokens of tekken_240911.json: 1,000 special ids first, then as many ranks as fit."""
    document = json.loads(files("mistral_common").joinpath("data", "tekken_240911.json").read_bytes())
    width, specials = document["config"]["default_vocab_size"], document["config"]["default_num_special_tokens"]
    ranks = [base64.b64decode(entry["token_bytes"]) for entry in document["vocab"][: width - specials]]
    special = {token: f"<special {token}>" for token in range(specials)}
    return build_vocabulary([b""] * specials + ranks, special, eog_ids=[2], logits_width=width)


class _Longest:
    """Cuts texts into the longest tokens that fit, one after another."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = {data: token for token, data in reversed(list(enumerate(vocabulary.token_bytes))) if data}
        self._longest = max(map(len, self._ids))

    def cut(self, text: bytes) -> list[int]:
        tokens: list[int] = []
        at = 0
        while at < len(text):
            end = next(end for end in range(min(len(text), at + self._longest), at, -1) if text[at:end] in self._ids)
            tokens.append(self._ids[text[at:end]])
            at = end
        return tokens

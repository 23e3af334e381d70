"""A small vocabulary whose prompts can be read, a scripted model, and plain samplers to put a constraint before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from constraintd.constraint import PartKind, PartSpec
from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.engine.matcher import CompiledGrammar
from constraintd.engine.pushdown import PushdownEngine
from constraintd.grammar.source import GrammarKind, parse_grammar
from constraintd.part_identity import grammar_identity
from constraintd.vocabulary.vocabulary import Vocabulary, build_vocabulary

# Ids 0 to 255 are the bytes; then two EOG ids (the second has text), a BOS, a special token, a hole and three texts.
EOG, EOG_TEXT, BOS, CALL, HOLE, AB, OPEN, NUL = range(256, 264)
WIDTH = 270


class ByteEncoder:
    """One token a byte."""

    source_digest = hashlib.sha256(b"toy byte encoder").hexdigest()

    def encode(self, text: str) -> list[int]:
        if text == "unreadable":
            raise LookupError("no token for that")
        return list(text.encode())


def vocabulary(*, bos_id: int | None = None, encoder: ByteEncoder | None = None) -> Vocabulary:
    """The toy vocabulary, with or without a BOS id and an encoder."""
    pieces = [b"", b"<end>", b"", b"", b"", b"ab", b'{"', b"\0a"]
    return build_vocabulary(
        [*(bytes([value]) for value in range(256)), *pieces],
        {EOG: "</s>", BOS: "<s>", CALL: "<call>"},
        eog_ids=[EOG, EOG_TEXT],
        logits_width=WIDTH,
        bos_id=bos_id,
        encoder=encoder,
    )


VOCABULARY = vocabulary(encoder=ByteEncoder())
REAL = set(range(264)) - {HOLE}
ENDS = {EOG, EOG_TEXT}
LLGUIDANCE = LlguidanceEngine(VOCABULARY)
PUSHDOWN = PushdownEngine(VOCABULARY)


def regex(pattern: str) -> CompiledGrammar:
    """A regular expression in the engine that compiles it for the service."""
    return LLGUIDANCE.compile(parse_grammar(GrammarKind.REGEX, [pattern.encode()], max_bytes=10_000))


def gbnf(source: str) -> CompiledGrammar:
    """A GBNF text in the engine that compiles it for the service."""
    grammar = parse_grammar(GrammarKind.GBNF, [source.encode(), b"root"], max_bytes=10_000)
    return PUSHDOWN.compile(grammar.grammar_id, source)


def json_object() -> CompiledGrammar:
    """Any JSON object."""
    return LLGUIDANCE.compile(parse_grammar(GrammarKind.JSON_OBJECT, [], max_bytes=10_000))


def part(compiled: CompiledGrammar) -> PartSpec:
    """A grammar as a part of a composition."""
    identity = grammar_identity(compiled.grammar_id, VOCABULARY)
    return PartSpec("grammar", PartKind.GRAMMAR, identity, compiled.start, compiled.at)


def legal(mask) -> set[int]:
    """The ids that a row of bools allows."""
    return set(np.flatnonzero(mask).tolist())


def flat(dtype=np.float32):
    """[270] a row without preferences."""
    return np.zeros(WIDTH, dtype=dtype)


def liking(*tokens: int):
    """[270] a row that likes these tokens, the first best, and all others equally less."""
    row = flat()
    for rank, token in enumerate(tokens):
        row[token] = 10.0 - rank
    return row


def greedy(row) -> int:
    """The first of the highest."""
    return int(np.argmax(row))


class Softmax:
    """Draws from the probabilities of the row."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def sample(self, row) -> int:
        weights = np.exp(row - row.max())
        return int(self.random.choice(len(row), p=weights / weights.sum()))


class ScriptedModel:
    """A model that likes to write one text, and then to end; it writes down what it was asked."""

    def __init__(self, *tokens: int) -> None:
        self.likes = [*tokens, EOG]
        self.prefills: list[list[int]] = []
        self.decodes: list[int] = []

    def prefill(self, tokens: Sequence[int]):
        self.prefills.append(list(tokens))
        return self._row()

    def decode(self, token: int):
        self.decodes.append(token)
        return self._row()

    @property
    def passes(self) -> int:
        return len(self.prefills) + len(self.decodes)

    def _row(self):
        return liking(self.likes[min(self.passes - 1, len(self.likes) - 1)])

"""SamplerStates over the toy vocabulary and the real engines."""

from __future__ import annotations

from constraintd.constraint import PartKind, PartSpec
from constraintd.engine.deferred import LazyGrammar, LazyOptions
from constraintd.engine.matcher import CompiledGrammar
from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.inprocess import SamplerState
from constraintd.part_identity import grammar_identity, lazy_identity
from constraintd.sampler.config import IgnoredNGrams, NGramPenalty, SamplerConfig
from constraintd.sampler.finish import Finish
from constraintd.sampler.settings import Settings
from tests.unit.inprocess.toy import VOCABULARY

UNIGRAMS = NGramPenalty(min_size=1, max_size=1, decay=0.5, ignored=IgnoredNGrams(sets=()))


def deferred(grammar: CompiledGrammar, word: str) -> PartSpec:
    """A grammar that sleeps until the text holds the word, which is its first text."""
    triggers = (Trigger(TriggerKind.WORD, text=word),)
    lazy = LazyGrammar(grammar, triggers, VOCABULARY)
    identity = lazy_identity(grammar_identity(grammar.grammar_id, VOCABULARY), triggers, LazyOptions())
    return PartSpec(f"deferred on {word}", PartKind.LAZY, identity, lazy.start, lazy.at)


def settings(*parts: PartSpec, max_tokens: int = 1000, **config: object) -> Settings:
    """What a state is folded under; keywords are SamplerConfig's fields."""
    return Settings(VOCABULARY, SamplerConfig(**config), parts, max_tokens=max_tokens)  # type: ignore[arg-type]


def start(*parts: PartSpec, prompt: tuple[int, ...] = (), **options: object) -> SamplerState:
    """A state before its first token."""
    return SamplerState.start(settings(*parts, **options), prompt)  # type: ignore[arg-type]


def legal(state: SamplerState) -> set[int]:
    """The ids whose bit is set."""
    view = state.mask()
    assert not isinstance(view, Finish), view
    words = int.from_bytes(view.dense, "little")
    return {token for token in range(8 * len(view.dense)) if words >> token & 1}


def take(state: SamplerState, *tokens: int | bytes, surprisal: float = 1.0) -> SamplerState:
    """The state behind these tokens, bytes standing for their tokens; each must have been legal and go on."""
    for part in tokens:
        for token in part if isinstance(part, bytes) else [part]:
            assert token in legal(state), token
            assert state.advance(token, surprisal) is None
    return state


def adjustments(state: SamplerState) -> list[list[float]] | None:
    """What the penalties change: ids, scales, offsets."""
    found = state.adjustments()
    return None if found is None else [found.ids.tolist(), found.scales.tolist(), found.offsets.tolist()]

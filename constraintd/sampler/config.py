"""How a session's tokens are picked and where it stops: frozen values. `check` validates them, the runner runs stages.

Defaults are those of `proto/constraintd/v1/sampler.proto`, which says what each value means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Greedy:
    """Takes the highest logit; ends the chain."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divides the logits; 0 is greedy and ends the chain."""

    temperature: float


@dataclass(frozen=True, slots=True)
class TopK:
    """Keeps the k highest logits."""

    k: int


@dataclass(frozen=True, slots=True)
class TopP:
    """Keeps the smallest set whose probability reaches p."""

    p: float


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps tokens at least p times as probable as the most probable."""

    p: float


@dataclass(frozen=True, slots=True)
class TypicalP:
    """Keeps the smallest set, closest to the entropy first, whose probability reaches p."""

    p: float


@dataclass(frozen=True, slots=True)
class TailFree:
    """Cuts the tail where the second differences of the probabilities have come to z."""

    z: float


@dataclass(frozen=True, slots=True)
class SplitP:
    """Cuts at the largest gap between neighbouring probabilities."""

    min_keep: int = 1
    max_keep: int = 50


@dataclass(frozen=True, slots=True)
class SplitL:
    """Cuts at the largest gap between neighbouring logits."""

    min_keep: int = 1
    max_keep: int = 50


@dataclass(frozen=True, slots=True)
class MirostatV1:
    """Holds the surprisal at tau by Zipf's law. `tau` in bits."""

    tau: float = 3.0
    eta: float = 0.1
    max_keep: int = 100


@dataclass(frozen=True, slots=True)
class MirostatV2:
    """Holds the surprisal at tau by a cut at mu. `tau` in bits."""

    tau: float = 3.0
    eta: float = 0.1
    max_keep: int = 100


@dataclass(frozen=True, slots=True)
class LogitBias:
    """Adds `biases[i]` to the logit of `ids[i]`."""

    ids: tuple[int, ...]
    biases: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DenyRanges:
    """None of these tokens: ranges [first, past the last). A rule of the mask, never a stage of the runner."""

    ranges: tuple[tuple[int, int], ...]


Mirostat: TypeAlias = MirostatV1 | MirostatV2
Stage: TypeAlias = (
    Greedy
    | Temperature
    | TopK
    | TopP
    | MinP
    | TypicalP
    | TailFree
    | SplitP
    | SplitL
    | MirostatV1
    | MirostatV2
    | LogitBias
    | DenyRanges
)


@dataclass(frozen=True, slots=True)
class WindowPenalty:
    """Penalties for tokens among the last `window` ones (None: all)."""

    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    window: int | None = None
    repetition_counts_prompt: bool = True
    frequency_counts_prompt: bool = False


class PenaltyMode(Enum):
    """How the n-gram penalty finds whom to punish; values are the protocol's names."""

    SURGICAL = "SURGICAL"
    BROAD = "BROAD"


class IgnoredSet(Enum):
    """Sets of n-grams that have a name; values are the protocol's names."""

    COMMON_WORDS = "COMMON_WORDS"
    JSON_PUNCTUATION = "JSON_PUNCTUATION"
    STOP_TOKENS = "STOP_TOKENS"


@dataclass(frozen=True, slots=True)
class IgnoredNGrams:
    """What the n-gram penalty leaves alone."""

    ngrams: tuple[tuple[int, ...], ...] = ()
    texts: tuple[bytes, ...] = ()
    sets: tuple[IgnoredSet, ...] = (IgnoredSet.COMMON_WORDS, IgnoredSet.JSON_PUNCTUATION, IgnoredSet.STOP_TOKENS)


@dataclass(frozen=True, slots=True)
class NGramPenalty:
    """Penalty for n-grams that come again."""

    mode: PenaltyMode = PenaltyMode.SURGICAL
    min_size: int = 1
    max_size: int = 4
    repeat: float = 1.05
    frequency: float = 0.025
    presence: float = 0.0625
    window: int = 2048
    decay: float = 0.99
    max_count: float = 1.0
    counts_prompt: bool = True
    ignored: IgnoredNGrams = field(default_factory=IgnoredNGrams)


@dataclass(frozen=True, slots=True)
class SamplerConfig:
    """A session's sampler config. `seed` is set by the time a session has one."""

    stages: tuple[Stage, ...] = ()
    seed: int = 0
    max_tokens: int | None = None
    stop_strings: tuple[bytes, ...] = ()
    stop_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    include_stop: bool = False
    banned_specials: tuple[int, ...] = ()
    window_penalty: WindowPenalty | None = None
    ngram_penalty: NGramPenalty | None = None

    @property
    def mirostat(self) -> Mirostat | None:
        """The chain's mirostat stage; a checked config has one at most."""
        return next((stage for stage in self.stages if isinstance(stage, MirostatV1 | MirostatV2)), None)

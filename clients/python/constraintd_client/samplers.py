"""Sampler configs, built from Python values. The daemon checks the ranges, and fills in what is left out.

Every function raises ValueError for a number that doesn't fit its field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from constraintd.v1 import sampler_pb2, token_ids_pb2

from .json_document import document_bytes

SamplerConfig: TypeAlias = sampler_pb2.SamplerConfig
"""How a token is picked from the masked logits, and when a session ends, as the protocol has it."""

SamplerStage: TypeAlias = sampler_pb2.SamplerStage
"""One stage of the chain, as the protocol has it."""

WindowPenalty: TypeAlias = sampler_pb2.WindowPenalty
"""Penalties for tokens that stand among the last ones, as the protocol has it."""

NGramPenalty: TypeAlias = sampler_pb2.NGramPenalty
"""Penalty for n-grams that come again, as the protocol has it."""

IgnoredNGrams: TypeAlias = sampler_pb2.IgnoredNGrams
"""What the n-gram penalty leaves alone, as the protocol has it."""

# --- stages ---


def greedy() -> SamplerStage:
    """Takes the highest logit, ties by the lowest id. Ends the chain."""
    return SamplerStage(greedy=sampler_pb2.Greedy())


def temperature(value: float) -> SamplerStage:
    """Divides the logits by `value`, finite and >= 0; 0 is greedy."""
    return SamplerStage(temperature=sampler_pb2.Temperature(temperature=value))


def top_k(k: int) -> SamplerStage:
    """Keeps the k highest logits, k >= 1."""
    return SamplerStage(top_k=sampler_pb2.TopK(k=k))


def top_p(p: float) -> SamplerStage:
    """Keeps the smallest set of most probable tokens whose probability reaches p, in (0, 1]."""
    return SamplerStage(top_p=sampler_pb2.TopP(p=p))


def min_p(p: float) -> SamplerStage:
    """Keeps tokens whose probability is at least p, in [0, 1], times that of the most probable one."""
    return SamplerStage(min_p=sampler_pb2.MinP(p=p))


def typical_p(p: float) -> SamplerStage:
    """Locally typical sampling: keeps the smallest set whose probability reaches p, in (0, 1], those first whose
    surprisal is closest to the entropy.
    """
    return SamplerStage(typical_p=sampler_pb2.TypicalP(p=p))


def tail_free(z: float) -> SamplerStage:
    """Cuts off the tail, where the second differences of the sorted probabilities have come to z, in (0, 1], of their
    sum.
    """
    return SamplerStage(tail_free=sampler_pb2.TailFree(z=z))


def split_p(min_keep: int | None = None, max_keep: int | None = None) -> SamplerStage:
    """Keeps the most probable tokens up to the largest gap between neighbouring probabilities; at least `min_keep`
    (None: 1), at most `max_keep` (None: 50).
    """
    return SamplerStage(split_p=sampler_pb2.SplitP(min_keep=min_keep, max_keep=max_keep))


def split_l(min_keep: int | None = None, max_keep: int | None = None) -> SamplerStage:
    """Keeps the highest logits up to the largest gap between neighbours; at least `min_keep` (None: 1), at most
    `max_keep` (None: 50).
    """
    return SamplerStage(split_l=sampler_pb2.SplitL(min_keep=min_keep, max_keep=max_keep))


def mirostat_v1(tau: float | None = None, eta: float | None = None, max_keep: int | None = None) -> SamplerStage:
    """Holds the surprisal near `tau` bits (None: 3) by an estimate of Zipf's exponent.

    `eta`: learning rate (None: 0.1). `max_keep` >= 2: tokens that the estimate looks at, and kept at most (None: 100).
    """
    return SamplerStage(mirostat_v1=sampler_pb2.MirostatV1(tau=tau, eta=eta, max_keep=max_keep))


def mirostat_v2(tau: float | None = None, eta: float | None = None, max_keep: int | None = None) -> SamplerStage:
    """Holds the surprisal near `tau` bits (None: 3) by a cut that moves at the learning rate `eta` (None: 0.1).

    `max_keep` >= 1: kept at most (None: 100).
    """
    return SamplerStage(mirostat_v2=sampler_pb2.MirostatV2(tau=tau, eta=eta, max_keep=max_keep))


def logit_bias(biases: Mapping[int, float]) -> SamplerStage:
    """Adds `biases[id]`, finite, to the logit of each id; at least one. No bias makes a forbidden token legal."""
    return SamplerStage(logit_bias=sampler_pb2.LogitBias(ids=biases.keys(), biases=biases.values()))


def deny_ranges_stage(ranges: Iterable[tuple[int, int]]) -> SamplerStage:
    """None of the tokens from `first` up to, not including, `end`, for each (first, end). A rule of the mask, whatever
    its place among the stages.
    """
    denied = [token_ids_pb2.IdRange(first=first, end=end) for first, end in ranges]
    return SamplerStage(deny_ranges=token_ids_pb2.IdRanges(ranges=denied))


# --- penalties ---


def window_penalty(
    *,
    repetition: float | None = None,
    frequency: float = 0.0,
    presence: float = 0.0,
    window: int | None = None,
    repetition_counts_prompt: bool | None = None,
    frequency_counts_prompt: bool = False,
) -> WindowPenalty:
    """Penalties for tokens among the last `window` >= 1 (None: all of them).

    Logits above 0 are divided by `repetition` > 0, others multiplied (None: 1, which changes nothing); `frequency` is
    subtracted for each occurrence, `presence` once. Repetition counts prompt tokens (None: it does), frequency and
    presence don't, unless it is said.
    """
    return WindowPenalty(
        repetition=repetition,
        frequency=frequency,
        presence=presence,
        window=window,
        repetition_counts_prompt=repetition_counts_prompt,
        frequency_counts_prompt=frequency_counts_prompt,
    )


def ngram_penalty(
    *,
    mode: Literal["surgical", "broad"] | None = None,
    min_size: int | None = None,
    max_size: int | None = None,
    repeat: float | None = None,
    frequency: float | None = None,
    presence: float | None = None,
    window: int | None = None,
    decay: float | None = None,
    max_count: float | None = None,
    counts_prompt: bool | None = None,
    ignored: IgnoredNGrams | None = None,
) -> NGramPenalty:
    """Penalty for n-grams of `min_size` to `max_size` tokens (1 to 7) that come again within `window` tokens.

    "surgical" punishes the token with which a repeated n-gram would go on from here, "broad" the last token of every
    n-gram. Past an effective count of `max_count`, to which an occurrence adds `decay` to the power of its age, a logit
    is scaled by `repeat` to the power of the n-gram's length; subtracted are `frequency` times the effective count, and
    `presence`. None: the default that `sampler.proto` names; of `ignored`, common words, JSON punctuation and stop
    tokens.
    """
    return NGramPenalty(
        mode=sampler_pb2.PenaltyMode.Value(f"PENALTY_MODE_{'UNSPECIFIED' if mode is None else mode.upper()}"),
        min_size=min_size,
        max_size=max_size,
        repeat=repeat,
        frequency=frequency,
        presence=presence,
        window=window,
        decay=decay,
        max_count=max_count,
        counts_prompt=counts_prompt,
        ignored=ignored,
    )


def ignored_ngrams(
    ngrams: Iterable[Sequence[int]] = (),
    *,
    texts: Sequence[str | bytes] = (),
    sets: Iterable[Literal["common_words", "json_punctuation", "stop_tokens"]] = (),
) -> IgnoredNGrams:
    """These and nothing else: n-grams by their tokens, texts that the vocabulary tokenises, and sets with a name."""
    return IgnoredNGrams(
        ngrams=[token_ids_pb2.TokenIds(ids=ids) for ids in ngrams],
        texts=_encoded(texts, "texts"),
        sets=[sampler_pb2.IgnoredSet.Value(f"IGNORED_SET_{name.upper()}") for name in sets],
    )


# --- configs ---


def sampler_config(
    *stages: SamplerStage,
    seed: int | None = None,
    max_tokens: int | None = None,
    stop_strings: Sequence[str | bytes] = (),
    stop_ids: Sequence[int] = (),
    min_tokens: int = 0,
    include_stop: bool = False,
    banned_specials: Sequence[int] = (),
    window_penalty: WindowPenalty | None = None,
    ngram_penalty: NGramPenalty | None = None,
) -> SamplerConfig:
    """The stages in their order (none: pick by draw), penalties before them, and where the session stops.

    `seed` None lets the daemon pick one. `max_tokens` None is no limit, 0 ends the session before its first
    token. Before `min_tokens` tokens no end is legal and stops are ignored, unless nothing else is legal. The stop
    belongs to the text only with `include_stop`. `banned_specials` are never legal.
    """
    return SamplerConfig(
        stages=stages,
        seed=seed,
        max_tokens=max_tokens,
        stop_strings=_encoded(stop_strings, "stop_strings"),
        stop_ids=stop_ids,
        min_tokens=min_tokens,
        include_stop=include_stop,
        banned_specials=token_ids_pb2.TokenIds(ids=banned_specials) if banned_specials else None,
        window_penalty=window_penalty,
        ngram_penalty=ngram_penalty,
    )


def sampler_preset(
    style: Literal["openai", "hugging_face", "llama_cpp"],
    parameters: Mapping[str, Any] | str | bytes,
    *,
    seed: int | None = None,
) -> SamplerConfig:
    """A config in the words of another API: the sampling parameters of OpenAI's requests, Hugging Face's
    GenerationConfig or llama.cpp's server, such as {"temperature": 0.7}, as a dict or as JSON.

    What they leave out has that API's documented default. Raises ValueError for a number that JSON does not have.
    """
    preset = sampler_pb2.SamplerPreset(
        style=sampler_pb2.PresetStyle.Value(f"PRESET_STYLE_{style.upper()}"), parameters=document_bytes(parameters)
    )
    return SamplerConfig(preset=preset, seed=seed)


def _encoded(texts: Sequence[str | bytes], name: str) -> list[bytes]:
    if isinstance(texts, str | bytes):
        raise TypeError(f"{name} is a list of texts, not one text")
    return [text.encode() if isinstance(text, str) else text for text in texts]

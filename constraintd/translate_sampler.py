"""SamplerConfig messages to domain values and back: defaults filled in, presets expanded, ranges not yet checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from constraintd.errors import InvalidField
from constraintd.sampler.config import (
    DenyRanges,
    Greedy,
    IgnoredNGrams,
    IgnoredSet,
    LogitBias,
    MinP,
    MirostatV1,
    MirostatV2,
    NGramPenalty,
    PenaltyMode,
    SamplerConfig,
    SplitL,
    SplitP,
    Stage,
    TailFree,
    Temperature,
    TopK,
    TopP,
    TypicalP,
    WindowPenalty,
)
from constraintd.sampler.presets import PresetStyle, config_of_preset
from constraintd.v1 import sampler_pb2, token_ids_pb2

_MODES = {
    sampler_pb2.PENALTY_MODE_UNSPECIFIED: PenaltyMode.SURGICAL,
    sampler_pb2.PENALTY_MODE_SURGICAL: PenaltyMode.SURGICAL,
    sampler_pb2.PENALTY_MODE_BROAD: PenaltyMode.BROAD,
}
_SETS = {
    sampler_pb2.IGNORED_SET_COMMON_WORDS: IgnoredSet.COMMON_WORDS,
    sampler_pb2.IGNORED_SET_JSON_PUNCTUATION: IgnoredSet.JSON_PUNCTUATION,
    sampler_pb2.IGNORED_SET_STOP_TOKENS: IgnoredSet.STOP_TOKENS,
}
_NO_SEED = -1  # no uint64
_STYLES = {
    sampler_pb2.PRESET_STYLE_OPENAI: PresetStyle.OPENAI,
    sampler_pb2.PRESET_STYLE_HUGGING_FACE: PresetStyle.HUGGING_FACE,
    sampler_pb2.PRESET_STYLE_LLAMA_CPP: PresetStyle.LLAMA_CPP,
}


def sampler_config_of(message: sampler_pb2.SamplerConfig, *, seed: int) -> SamplerConfig:
    """The config, unset values at the protocol's defaults, a preset expanded; `seed` (64 bits) where there is none.

    Ranges are left to `check_sampler_config`. Raises InvalidField for an empty stage, a value of an enum that this
    server does not know, and for what stands beside a preset or is wrong in it; TooLarge for a preset.
    """
    if message.HasField("preset"):
        return _config_of_preset(message, seed)
    return SamplerConfig(
        stages=tuple(_stage_of(i, stage) for i, stage in enumerate(message.stages)),
        seed=message.seed if message.HasField("seed") else seed,
        max_tokens=message.max_tokens if message.HasField("max_tokens") else None,
        stop_strings=tuple(message.stop_strings),
        stop_ids=tuple(message.stop_ids),
        min_tokens=message.min_tokens,
        include_stop=message.include_stop,
        banned_specials=tuple(message.banned_specials.ids),
        window_penalty=WindowPenalty(**_given(message.window_penalty)) if message.HasField("window_penalty") else None,
        ngram_penalty=_ngram_penalty_of(message.ngram_penalty) if message.HasField("ngram_penalty") else None,
    )


def sampler_and_seed(message: sampler_pb2.SamplerConfig) -> tuple[SamplerConfig, int | None]:
    """The config without a seed of its own, and the seed that the message gives, itself or in a preset; None: none.

    Raises as `sampler_config_of` does.
    """
    config = sampler_config_of(message, seed=_NO_SEED)
    return replace(config, seed=0), None if config.seed == _NO_SEED else config.seed


def _config_of_preset(message: sampler_pb2.SamplerConfig, seed: int) -> SamplerConfig:
    for descriptor, _ in message.ListFields():
        if descriptor.name not in ("preset", "seed", "max_tokens"):
            raise InvalidField(
                f"sampler.{descriptor.name}",
                "stands beside a preset, where only seed and max_tokens may; say it in the preset's words or leave the "
                "preset out",
            )
    preset = message.preset
    if preset.style not in _STYLES:
        raise InvalidField("sampler.preset.style", f"{preset.style} is no style; set OPENAI, HUGGING_FACE or LLAMA_CPP")
    config = config_of_preset(_STYLES[preset.style], preset.parameters, seed=seed)
    if message.HasField("seed"):
        config = replace(config, seed=message.seed)
    if message.HasField("max_tokens"):
        bound = message.max_tokens if config.max_tokens is None else min(message.max_tokens, config.max_tokens)
        config = replace(config, max_tokens=bound)
    return config


def _stage_of(index: int, message: sampler_pb2.SamplerStage) -> Stage:
    match message.WhichOneof("stage"):
        case "greedy":
            return Greedy()
        case "temperature":
            return Temperature(message.temperature.temperature)
        case "top_k":
            return TopK(message.top_k.k)
        case "top_p":
            return TopP(message.top_p.p)
        case "min_p":
            return MinP(message.min_p.p)
        case "typical_p":
            return TypicalP(message.typical_p.p)
        case "tail_free":
            return TailFree(message.tail_free.z)
        case "split_p":
            return SplitP(**_given(message.split_p))
        case "split_l":
            return SplitL(**_given(message.split_l))
        case "mirostat_v1":
            return MirostatV1(**_given(message.mirostat_v1))
        case "mirostat_v2":
            return MirostatV2(**_given(message.mirostat_v2))
        case "logit_bias":
            return LogitBias(tuple(message.logit_bias.ids), tuple(message.logit_bias.biases))
        case "deny_ranges":
            return DenyRanges(tuple((each.first, each.end) for each in message.deny_ranges.ranges))
        case _:
            raise InvalidField(
                f"sampler.stages[{index}]", "is empty, or of a kind that this server does not know; set one stage"
            )


def _ngram_penalty_of(message: sampler_pb2.NGramPenalty) -> NGramPenalty:
    given = _given(message)
    if message.mode not in _MODES:
        raise InvalidField("sampler.ngram_penalty.mode", f"{message.mode} is no mode; set SURGICAL or BROAD")
    given["mode"] = _MODES[message.mode]
    if message.HasField("ignored"):
        given["ignored"] = _ignored_of(message.ignored)
    return NGramPenalty(**given)


def _ignored_of(message: sampler_pb2.IgnoredNGrams) -> IgnoredNGrams:
    for i, each in enumerate(message.sets):
        if each not in _SETS:
            raise InvalidField(
                f"sampler.ngram_penalty.ignored.sets[{i}]",
                f"{each} is no set; set COMMON_WORDS, JSON_PUNCTUATION or STOP_TOKENS",
            )
    return IgnoredNGrams(
        ngrams=tuple(tuple(ngram.ids) for ngram in message.ngrams),
        texts=tuple(message.texts),
        sets=tuple(dict.fromkeys(_SETS[each] for each in message.sets)),
    )


def _given(message: Message) -> dict[str, Any]:
    """The fields that are set, by name. The domain's values bear the protocol's names, and hold its defaults."""
    return {descriptor.name: value for descriptor, value in message.ListFields()}


def sampler_config_message(config: SamplerConfig) -> sampler_pb2.SamplerConfig:
    """The config as it is in force: every default is filled in, and there is no preset."""
    message = sampler_pb2.SamplerConfig(
        stages=[_stage_message(stage) for stage in config.stages],
        seed=config.seed,
        max_tokens=config.max_tokens,
        stop_strings=config.stop_strings,
        stop_ids=config.stop_ids,
        min_tokens=config.min_tokens,
        include_stop=config.include_stop,
    )
    if config.banned_specials:
        message.banned_specials.ids.extend(config.banned_specials)
    if config.window_penalty is not None:
        message.window_penalty.CopyFrom(_window_penalty_message(config.window_penalty))
    if config.ngram_penalty is not None:
        message.ngram_penalty.CopyFrom(_ngram_penalty_message(config.ngram_penalty))
    return message


def _window_penalty_message(penalty: WindowPenalty) -> sampler_pb2.WindowPenalty:
    return sampler_pb2.WindowPenalty(
        repetition=penalty.repetition,
        frequency=penalty.frequency,
        presence=penalty.presence,
        window=penalty.window,
        repetition_counts_prompt=penalty.repetition_counts_prompt,
        frequency_counts_prompt=penalty.frequency_counts_prompt,
    )


def _ngram_penalty_message(penalty: NGramPenalty) -> sampler_pb2.NGramPenalty:
    ignored = penalty.ignored
    return sampler_pb2.NGramPenalty(
        mode=sampler_pb2.PenaltyMode.Value(f"PENALTY_MODE_{penalty.mode.value}"),
        min_size=penalty.min_size,
        max_size=penalty.max_size,
        repeat=penalty.repeat,
        frequency=penalty.frequency,
        presence=penalty.presence,
        window=penalty.window,
        decay=penalty.decay,
        max_count=penalty.max_count,
        counts_prompt=penalty.counts_prompt,
        ignored=sampler_pb2.IgnoredNGrams(
            ngrams=[token_ids_pb2.TokenIds(ids=ngram) for ngram in ignored.ngrams],
            texts=ignored.texts,
            sets=[sampler_pb2.IgnoredSet.Value(f"IGNORED_SET_{each.value}") for each in ignored.sets],
        ),
    )


def _stage_message(stage: Stage) -> sampler_pb2.SamplerStage:
    match stage:
        case Greedy():
            return sampler_pb2.SamplerStage(greedy=sampler_pb2.Greedy())
        case Temperature(t):
            return sampler_pb2.SamplerStage(temperature=sampler_pb2.Temperature(temperature=t))
        case TopK(k):
            return sampler_pb2.SamplerStage(top_k=sampler_pb2.TopK(k=k))
        case TopP(p):
            return sampler_pb2.SamplerStage(top_p=sampler_pb2.TopP(p=p))
        case MinP(p):
            return sampler_pb2.SamplerStage(min_p=sampler_pb2.MinP(p=p))
        case TypicalP(p):
            return sampler_pb2.SamplerStage(typical_p=sampler_pb2.TypicalP(p=p))
        case TailFree(z):
            return sampler_pb2.SamplerStage(tail_free=sampler_pb2.TailFree(z=z))
        case SplitP(least, most):
            return sampler_pb2.SamplerStage(split_p=sampler_pb2.SplitP(min_keep=least, max_keep=most))
        case SplitL(least, most):
            return sampler_pb2.SamplerStage(split_l=sampler_pb2.SplitL(min_keep=least, max_keep=most))
        case MirostatV1(tau, eta, most):
            return sampler_pb2.SamplerStage(mirostat_v1=sampler_pb2.MirostatV1(tau=tau, eta=eta, max_keep=most))
        case MirostatV2(tau, eta, most):
            return sampler_pb2.SamplerStage(mirostat_v2=sampler_pb2.MirostatV2(tau=tau, eta=eta, max_keep=most))
        case LogitBias(ids, biases):
            return sampler_pb2.SamplerStage(logit_bias=sampler_pb2.LogitBias(ids=ids, biases=biases))
        case DenyRanges(ranges):
            parts = [token_ids_pb2.IdRange(first=first, end=end) for first, end in ranges]
            return sampler_pb2.SamplerStage(deny_ranges=token_ids_pb2.IdRanges(ranges=parts))

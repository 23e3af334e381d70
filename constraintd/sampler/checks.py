"""Checks a sampler config: contradictions and values out of range, by the field's name."""

from __future__ import annotations

import math
from collections.abc import Sequence

from constraintd.config import Limits
from constraintd.errors import InvalidField, TooLarge
from constraintd.sampler.config import (
    DenyRanges,
    Greedy,
    IgnoredNGrams,
    LogitBias,
    MinP,
    MirostatV1,
    MirostatV2,
    NGramPenalty,
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

MAX_NGRAM_SIZE = 7
MAX_NGRAM_WINDOW = 65_536
MAX_IGNORED_NGRAMS = 4096
MAX_IGNORED_TEXTS = 4096
# Seven of the longest tokens; a longer text is no n-gram.
MAX_IGNORED_TEXT_BYTES = 1024


def check_sampler_config(config: SamplerConfig, *, logits_width: int, limits: Limits) -> None:
    """Raises InvalidField or TooLarge with the field's name if the config contradicts itself or leaves its ranges.

    Whether `banned_specials` are special, and what an ignored text is in tokens, is seen where the rules are built.
    """
    if len(config.stages) > limits.max_stages:
        raise TooLarge("sampler.stages", limit=limits.max_stages, actual=len(config.stages), unit="stages")
    for i, stage in enumerate(config.stages):
        _check_stage(f"sampler.stages[{i}]", stage, logits_width)
    _check_order(config.stages)
    if config.max_tokens is not None and config.min_tokens > config.max_tokens:
        raise InvalidField(
            "sampler.min_tokens", f"{config.min_tokens} is above max_tokens {config.max_tokens}; lower it or raise that"
        )
    _check_stop_strings(config.stop_strings, limits)
    _check_ids("sampler.stop_ids", config.stop_ids, logits_width)
    _check_ids("sampler.banned_specials.ids", config.banned_specials, logits_width)
    if config.window_penalty is not None:
        _check_window_penalty("sampler.window_penalty", config.window_penalty)
    if config.ngram_penalty is not None:
        _check_ngram_penalty("sampler.ngram_penalty", config.ngram_penalty, logits_width)


def _check_order(stages: Sequence[Stage]) -> None:
    # deny_ranges is a rule of the mask and may stand anywhere.
    chain = [(i, stage) for i, stage in enumerate(stages) if not isinstance(stage, DenyRanges)]
    for i, stage in chain:
        if _is_greedy(stage) and i != chain[-1][0]:
            raise InvalidField(
                f"sampler.stages[{i}]", "greedy ends the chain, yet another stage follows it; put it last"
            )
    mirostats = [i for i, stage in chain if isinstance(stage, MirostatV1 | MirostatV2)]
    if len(mirostats) > 1:
        raise InvalidField(
            f"sampler.stages[{mirostats[1]}]",
            f"a second mirostat beside stages[{mirostats[0]}], yet there is one mu; keep one of them",
        )
    if mirostats and _is_greedy(chain[-1][1]):
        raise InvalidField(
            f"sampler.stages[{chain[-1][0]}]",
            f"greedy leaves the mirostat of stages[{mirostats[0]}] nothing to choose; keep one of them",
        )


def _is_greedy(stage: Stage) -> bool:
    return isinstance(stage, Greedy) or (isinstance(stage, Temperature) and stage.temperature == 0)


def _check_stage(field: str, stage: Stage, width: int) -> None:
    match stage:
        case Greedy():
            pass
        case Temperature(t):
            if not (math.isfinite(t) and t >= 0):
                raise InvalidField(f"{field}.temperature", f"{t} must be finite and at least 0 (0 is greedy)")
        case TopK(k):
            if k < 1:
                raise InvalidField(f"{field}.top_k", "must be at least 1; leave the stage out to keep every token")
        case TopP(p):
            _check_share(f"{field}.top_p", p, "leave the stage out to keep every token")
        case MinP(p):
            if not 0 <= p <= 1:
                raise InvalidField(f"{field}.min_p", f"{p} must be between 0 and 1 (0 keeps every token)")
        case TypicalP(p):
            _check_share(f"{field}.typical_p", p, "leave the stage out to keep every token")
        case TailFree(z):
            _check_share(f"{field}.tail_free", z, "leave the stage out to keep every token")
        case SplitP(min_keep, max_keep):
            _check_keep(f"{field}.split_p", min_keep, max_keep)
        case SplitL(min_keep, max_keep):
            _check_keep(f"{field}.split_l", min_keep, max_keep)
        case MirostatV1():
            _check_mirostat(f"{field}.mirostat_v1", stage, least=2)
        case MirostatV2():
            _check_mirostat(f"{field}.mirostat_v2", stage, least=1)
        case LogitBias():
            _check_logit_bias(f"{field}.logit_bias", stage, width)
        case DenyRanges(ranges):
            _check_ranges(f"{field}.deny_ranges.ranges", ranges, width)


def _check_keep(field: str, min_keep: int, max_keep: int) -> None:
    if min_keep < 1:
        raise InvalidField(f"{field}.min_keep", "must be at least 1, or no token would be left; leave it out for 1")
    if max_keep < min_keep:
        raise InvalidField(f"{field}.max_keep", f"{max_keep} is below min_keep {min_keep}; raise it or lower that")


def _check_mirostat(field: str, stage: MirostatV1 | MirostatV2, *, least: int) -> None:
    _check_positive(f"{field}.tau", stage.tau, "it is in bits; leave it out for 3")
    _check_positive(f"{field}.eta", stage.eta, "leave it out for 0.1")
    if stage.max_keep < least:
        raise InvalidField(f"{field}.max_keep", f"{stage.max_keep} must be at least {least}; leave it out for 100")


def _check_logit_bias(field: str, stage: LogitBias, width: int) -> None:
    ids, biases = stage.ids, stage.biases
    if not ids:
        raise InvalidField(f"{field}.ids", "is empty; name at least one token, or leave the stage out")
    if len(ids) != len(biases):
        raise InvalidField(f"{field}.biases", f"has {len(biases)} biases for {len(ids)} ids; give one an id")
    if len(ids) > width:
        raise InvalidField(f"{field}.ids", f"has {len(ids)} ids where there are {width} tokens; name each once")
    _check_ids(f"{field}.ids", ids, width)
    seen: set[int] = set()
    for i, (token, bias) in enumerate(zip(ids, biases, strict=True)):
        if token in seen:
            raise InvalidField(f"{field}.ids[{i}]", f"{token} stands there twice; add its biases up")
        seen.add(token)
        _check_finite(f"{field}.biases[{i}]", bias, "to forbid a token, use deny_ranges")


def _check_ranges(field: str, ranges: Sequence[tuple[int, int]], width: int) -> None:
    if not ranges:
        raise InvalidField(field, "is empty; name at least one range, or leave the stage out")
    if len(ranges) > width:
        raise InvalidField(field, f"has {len(ranges)} ranges where there are {width} tokens; join those that overlap")
    for i, (first, end) in enumerate(ranges):
        if first >= end:
            raise InvalidField(f"{field}[{i}]", f"holds no id: first {first} must be below end {end}, the id past it")
        if end > width:
            raise InvalidField(f"{field}[{i}].end", f"{end} is past the logits width of {width}; end it there")


def _check_window_penalty(field: str, penalty: WindowPenalty) -> None:
    _check_positive(f"{field}.repetition", penalty.repetition, "1 is no penalty")
    _check_finite(f"{field}.frequency", penalty.frequency, "0 is no penalty")
    _check_finite(f"{field}.presence", penalty.presence, "0 is no penalty")
    if penalty.window is not None and penalty.window < 1:
        raise InvalidField(f"{field}.window", "must be at least 1; leave it out for all tokens")


def _check_ngram_penalty(field: str, penalty: NGramPenalty, width: int) -> None:
    least, most = penalty.min_size, penalty.max_size
    if not 1 <= least <= MAX_NGRAM_SIZE:
        raise InvalidField(f"{field}.min_size", f"{least} must be between 1 and {MAX_NGRAM_SIZE}; leave it out for 1")
    if not 1 <= most <= MAX_NGRAM_SIZE:
        raise InvalidField(f"{field}.max_size", f"{most} must be between 1 and {MAX_NGRAM_SIZE}; leave it out for 4")
    if least > most:
        raise InvalidField(f"{field}.min_size", f"{least} is above max_size {most}; lower it or raise that")
    _check_positive(f"{field}.repeat", penalty.repeat, "1 is no penalty")
    # The scale of the longest n-gram has to be a number too.
    exponent = most * math.log2(penalty.repeat)
    if not -1022 <= exponent < 1024:
        raise InvalidField(
            f"{field}.repeat", f"{penalty.repeat} to the power of max_size {most} is no float64; bring it closer to 1"
        )
    _check_finite(f"{field}.frequency", penalty.frequency, "0 is no penalty")
    _check_finite(f"{field}.presence", penalty.presence, "0 is no penalty")
    if not 1 <= penalty.window <= MAX_NGRAM_WINDOW:
        raise InvalidField(
            f"{field}.window", f"{penalty.window} must be between 1 and {MAX_NGRAM_WINDOW}; leave it out for 2048"
        )
    _check_share(f"{field}.decay", penalty.decay, "1 counts old and new alike")
    if not (math.isfinite(penalty.max_count) and penalty.max_count >= 0):
        raise InvalidField(f"{field}.max_count", f"{penalty.max_count} must be finite and at least 0")
    _check_ignored(f"{field}.ignored", penalty.ignored, width)


def _check_ignored(field: str, ignored: IgnoredNGrams, width: int) -> None:
    if len(ignored.ngrams) > MAX_IGNORED_NGRAMS:
        raise TooLarge(f"{field}.ngrams", limit=MAX_IGNORED_NGRAMS, actual=len(ignored.ngrams), unit="n-grams")
    for i, ngram in enumerate(ignored.ngrams):
        if not 1 <= len(ngram) <= MAX_NGRAM_SIZE:
            raise InvalidField(f"{field}.ngrams[{i}]", f"has {len(ngram)} tokens; an n-gram has 1 to {MAX_NGRAM_SIZE}")
        _check_ids(f"{field}.ngrams[{i}].ids", ngram, width)
    if len(ignored.texts) > MAX_IGNORED_TEXTS:
        raise TooLarge(f"{field}.texts", limit=MAX_IGNORED_TEXTS, actual=len(ignored.texts), unit="texts")
    for i, text in enumerate(ignored.texts):
        if not text:
            raise InvalidField(f"{field}.texts[{i}]", "is empty; leave it out")
        if len(text) > MAX_IGNORED_TEXT_BYTES:
            raise TooLarge(f"{field}.texts[{i}]", limit=MAX_IGNORED_TEXT_BYTES, actual=len(text))
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise InvalidField(
                f"{field}.texts[{i}]", f"is not UTF-8 at byte {error.start}; give its tokens in ngrams instead"
            ) from None


def _check_stop_strings(stops: Sequence[bytes], limits: Limits) -> None:
    if len(stops) > limits.max_stop_strings:
        raise TooLarge("sampler.stop_strings", limit=limits.max_stop_strings, actual=len(stops), unit="strings")
    for i, stop in enumerate(stops):
        if not stop:
            raise InvalidField(f"sampler.stop_strings[{i}]", "an empty stop string would stop everywhere; leave it out")
        if len(stop) > limits.max_stop_string_bytes:
            raise TooLarge(f"sampler.stop_strings[{i}]", limit=limits.max_stop_string_bytes, actual=len(stop))


def _check_ids(field: str, ids: Sequence[int], width: int) -> None:
    for i, token in enumerate(ids):
        if token >= width:
            raise InvalidField(f"{field}[{i}]", f"{token} is past the logits width of {width}; no such token exists")


def _check_share(field: str, value: float, remedy: str) -> None:
    if not 0 < value <= 1:
        raise InvalidField(field, f"{value} must be above 0 and at most 1; {remedy}")


def _check_positive(field: str, value: float, remedy: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidField(field, f"{value} must be finite and above 0; {remedy}")


def _check_finite(field: str, value: float, remedy: str) -> None:
    if not math.isfinite(value):
        raise InvalidField(field, f"{value} must be finite; {remedy}")

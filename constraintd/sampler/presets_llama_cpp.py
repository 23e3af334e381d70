"""llama.cpp's server requests: the sampling part. Source: the server's README, "POST /completion", and its options."""

from __future__ import annotations

from collections.abc import Iterable

from constraintd.errors import InvalidField
from constraintd.sampler.config import (
    Greedy,
    LogitBias,
    MirostatV1,
    MirostatV2,
    SamplerConfig,
    Stage,
    TailFree,
    WindowPenalty,
)
from constraintd.sampler.presets_parameters import (
    FIELD,
    MAX_UINT32,
    Names,
    Parameters,
    Span,
    integer_at,
    number_at,
    parameters_of,
    shown,
    token_id_of,
    words,
)
from constraintd.sampler.presets_stages import (
    deny_stages,
    min_p_stages,
    temperature_stages,
    top_k_stages,
    top_p_stages,
    typical_p_stages,
)

_GRAMMAR = "compile it as a grammar and open the session with that"

NAMES = Names(
    api="llama.cpp's server",
    offered=words(
        "temperature temp top_k top_p min_p typical_p typ_p tfs_z repeat_penalty repeat_last_n presence_penalty "
        "frequency_penalty mirostat mirostat_tau mirostat_eta seed n_predict stop logit_bias samplers"
    ),
    idle={
        "dry_multiplier": (0,),
        "xtc_probability": (0,),
        "top_n_sigma": (-1, 0),
        "dynatemp_range": (0,),
        "adaptive_target": (-1,),
        "min_keep": (0, 1),
        "ignore_eos": (False,),
        "penalize_nl": (True,),
        "n_indent": (0,),
        "t_max_predict_ms": (0, -1),
        "n_cmpl": (1,),
    },
    # Without their idle companions above they change nothing.
    ignored=words(
        "dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers xtc_threshold dynatemp_exponent "
        "adaptive_decay"
    ),
    unrelated=words(
        "model messages prompt stream n n_keep n_discard n_probs cache_prompt n_cache_reuse id_slot grammar "
        "json_schema grammar_lazy grammar_triggers lora return_tokens return_progress timings_per_token "
        "post_sampling_probs response_fields sse_ping_interval"
    ),
    remedies={
        "ignore_eos": "EOG ids can't be banned; use a sampler config without a preset and set its min_tokens",
        "grammar": _GRAMMAR,
        "json_schema": _GRAMMAR,
        "n_cmpl": "open a session for each completion",
        "dry_multiplier": "use a sampler config with an ngram_penalty",
        "max_tokens": "did you mean n_predict?",
    },
)

# tfs_z left the default order with the sampler itself; where it is asked for, it stands where it stood.
_DEFAULT_ORDER = ("penalties", "top_k", "tfs_z", "typ_p", "top_p", "min_p", "temperature")
# These may be named, since at the values that are taken here they change nothing.
_IDLE_SAMPLERS = ("dry", "top_n_sigma", "xtc")
_RANDOM_SEEDS = (-1, MAX_UINT32)


def llama_cpp_config(text: bytes, *, seed: int) -> SamplerConfig:
    """The config. Order: logit_bias, then `samplers`.

    | name                 | values                    | default | becomes                                          |
    |----------------------|---------------------------|---------|--------------------------------------------------|
    | temperature, temp    | finite                    | 0.8     | temperature; 0 and below: greedy                 |
    | top_k                | whole                     | 40      | top_k; 0 and below: off                          |
    | top_p                | 0 to 1                    | 0.95    | top_p                                            |
    | min_p                | 0 to 1                    | 0.05    | min_p                                            |
    | typical_p, typ_p     | above 0, at most 1        | 1       | typical_p                                        |
    | tfs_z                | above 0, at most 1        | 1       | tail_free                                        |
    | repeat_penalty       | above 0                   | 1       | window_penalty, prompt counted                   |
    | repeat_last_n        | -1, 0, ...                | 64      | the penalties' window; 0: no penalty, -1: all    |
    | presence_penalty     | finite                    | 0       | window_penalty, prompt counted                   |
    | frequency_penalty    | finite                    | 0       | window_penalty, prompt counted                   |
    | mirostat             | 0, 1, 2                   | 0       | mirostat_v1, mirostat_v2                         |
    | mirostat_tau         | above 0                   | 5       | tau                                              |
    | mirostat_eta         | above 0                   | 0.1     | eta                                              |
    | seed                 | 32 bits                   | -1      | seed; -1 (or 4294967295): `seed`, else mod 2^32  |
    | n_predict            | -1, 0, ...                | -1      | max_tokens; -1: none                             |
    | stop                 | list of strings           | []      | stop_strings                                     |
    | logit_bias           | [[id, bias]], {"id": bias}| []      | logit_bias; a bias of false: deny_ranges         |
    | samplers             | list of names             | below   | which stages, in which order                     |

    `samplers` takes penalties (first or not at all), top_k, tfs_z, typ_p (typical_p), top_p, min_p and temperature, by
    default all of them in this order; what it doesn't name is off. dry, top_n_sigma and xtc may stand among them and
    change nothing. With mirostat the chain is logit_bias, temperature, mirostat, whatever `samplers` and the penalties
    say, as there; its first version there keeps as many tokens as it computes, here 100 at most.

    null is the default. The README's request section still gives repeat_penalty's old default of 1.1; the options and
    the code say 1. One difference: there logit_bias comes before the penalties, here after them, so a token that has a
    bias and a repeat_penalty differs. dry, xtc, top_n_sigma, dynatemp and others are taken at the value that changes
    nothing. Raises InvalidField, TooLarge.
    """
    given = parameters_of(text, NAMES)
    order = _order_of(given)
    stages = _stages_by_name(given)
    mirostat = _mirostat_of(given)
    penalty = _penalty_of(given)
    if mirostat:
        order, penalty = ("temperature", "mirostat"), None
        stages["mirostat"] = mirostat
    if "penalties" not in order:
        penalty = None
    return SamplerConfig(
        stages=(*_bias_of(given), *_up_to_greedy(stage for name in order for stage in stages.get(name, ()))),
        seed=_seed_of(given, seed),
        max_tokens=_max_tokens_of(given),
        stop_strings=given.texts("stop"),
        window_penalty=penalty,
    )


def _stages_by_name(given: Parameters) -> dict[str, tuple[Stage, ...]]:
    temperature = given.number(_one_name(given, "temperature", "temp"), 0.8, Span())
    tail_free = given.number("tfs_z", 1, Span(0, 1, above=True))
    return {
        "temperature": (Greedy(),) if temperature <= 0 else temperature_stages(temperature),
        "top_k": top_k_stages(given.integer("top_k", 40, least=-(1 << 31), most=(1 << 31) - 1)),
        "top_p": top_p_stages(given.number("top_p", 0.95, Span(0, 1))),
        "min_p": min_p_stages(given.number("min_p", 0.05, Span(0, 1))),
        "typ_p": typical_p_stages(given.number(_one_name(given, "typical_p", "typ_p"), 1, Span(0, 1, above=True))),
        "tfs_z": () if tail_free == 1 else (TailFree(tail_free),),
    }


def _order_of(given: Parameters) -> tuple[str, ...]:
    if not given.given("samplers"):
        return _DEFAULT_ORDER
    at, value = f"{FIELD}.samplers", given.values["samplers"]
    if not isinstance(value, list):
        raise InvalidField(at, f"must be a list of names, such as {list(_DEFAULT_ORDER)}")
    order: list[str] = []
    for i, name in enumerate(value):
        known = "typ_p" if name == "typical_p" else name
        if not isinstance(known, str) or known not in (*_DEFAULT_ORDER, *_IDLE_SAMPLERS):
            raise InvalidField(f"{at}[{i}]", f"{shown(name)} is not offered; offered are {', '.join(_DEFAULT_ORDER)}")
        if known == "penalties" and order:
            raise InvalidField(f"{at}[{i}]", "penalties always come first here; put them there or leave them out")
        if known not in _IDLE_SAMPLERS:
            order.append(known)
    return tuple(order)


def _mirostat_of(given: Parameters) -> tuple[Stage, ...]:
    version = given.integer("mirostat", 0, least=0, most=2)
    tau = given.number("mirostat_tau", 5, Span(0, above=True))
    eta = given.number("mirostat_eta", 0.1, Span(0, above=True))
    if version == 1:
        return (MirostatV1(tau, eta, max_keep=100),)  # llama.cpp estimates the exponent from 100 tokens.
    # llama.cpp's second version has no bound but mu.
    return (MirostatV2(tau, eta, max_keep=MAX_UINT32),) if version == 2 else ()


def _penalty_of(given: Parameters) -> WindowPenalty | None:
    repetition = given.number("repeat_penalty", 1, Span(0, above=True))
    frequency = given.number("frequency_penalty", 0, Span())
    presence = given.number("presence_penalty", 0, Span())
    window = given.integer("repeat_last_n", 64, least=-1, most=(1 << 31) - 1)
    if window == 0 or (repetition == 1 and frequency == 0 and presence == 0):
        return None
    return WindowPenalty(repetition, frequency, presence, None if window == -1 else window, True, True)


def _bias_of(given: Parameters) -> tuple[Stage, ...]:
    if not given.given("logit_bias"):
        return ()
    at, value = f"{FIELD}.logit_bias", given.values["logit_bias"]
    biases: dict[int, float] = {}
    denied: set[int] = set()
    for place, token, bias in _bias_pairs(at, value):
        if token in biases or token in denied:
            raise InvalidField(place, f"token {token} stands twice; keep one of them")
        if bias is False:
            denied.add(token)
        else:
            biases[token] = number_at(place, bias, Span())
    stages = (LogitBias(tuple(biases), tuple(biases.values())),) if biases else ()
    return (*deny_stages(denied), *stages)


def _bias_pairs(at: str, value: object) -> list[tuple[str, int, object]]:
    """(where it stands, token id, bias) of each entry, in order."""
    if isinstance(value, dict):
        return [(f"{at}.{key}", token_id_of(at, key), bias) for key, bias in value.items()]
    if not isinstance(value, list):
        raise InvalidField(at, "must be a list of [token id, bias] or an object of token ids and biases")
    pairs: list[tuple[str, int, object]] = []
    for i, entry in enumerate(value):
        place = f"{at}[{i}]"
        if not isinstance(entry, list) or len(entry) != 2:
            raise InvalidField(place, "must be [token id, bias]")
        if isinstance(entry[0], str):
            raise InvalidField(place, f"{shown(entry[0])}: texts are not offered here; give the ids of its tokens")
        pairs.append((place, integer_at(place, entry[0], least=0, most=MAX_UINT32), entry[1]))
    return pairs


def _up_to_greedy(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Greedy leaves one token, which every later stage keeps; so it may end the chain, as it must here."""
    kept: list[Stage] = []
    for stage in stages:
        kept.append(stage)
        if isinstance(stage, Greedy):
            break
    return tuple(kept)


def _seed_of(given: Parameters, seed: int) -> int:
    asked = given.integer("seed", -1, least=-(1 << 31), most=MAX_UINT32)
    return seed if asked in _RANDOM_SEEDS else asked % (1 << 32)


def _max_tokens_of(given: Parameters) -> int | None:
    most = given.integer("n_predict", -1, least=-1, most=(1 << 31) - 1)
    return None if most == -1 else most


def _one_name(given: Parameters, name: str, alias: str) -> str:
    if given.given(name) and given.given(alias):
        raise InvalidField(f"{FIELD}.{alias}", f"stands beside {name}, which means the same; keep one of them")
    return alias if given.given(alias) else name

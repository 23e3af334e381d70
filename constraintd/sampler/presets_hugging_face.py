"""Hugging Face's GenerationConfig: the sampling part. Source: the docs of `transformers.GenerationConfig`."""

from __future__ import annotations

from constraintd.errors import InvalidField
from constraintd.sampler.config import Greedy, SamplerConfig, Stage, WindowPenalty
from constraintd.sampler.presets_parameters import FIELD, Names, Parameters, Span, parameters_of, words
from constraintd.sampler.presets_stages import (
    deny_stages,
    min_p_stages,
    temperature_stages,
    top_k_stages,
    top_p_stages,
    typical_p_stages,
)

NAMES = Names(
    api="Hugging Face's GenerationConfig",
    offered=words(
        "do_sample temperature top_k top_p min_p typical_p repetition_penalty max_new_tokens min_new_tokens "
        "stop_strings eos_token_id suppress_tokens"
    ),
    idle={
        "max_length": (),
        "min_length": (0,),
        "max_time": (),
        "early_stopping": (False,),
        "num_beams": (1,),
        "num_beam_groups": (1,),
        "num_return_sequences": (1,),
        "penalty_alpha": (0,),
        "dola_layers": (),
        "top_h": (),
        "epsilon_cutoff": (0,),
        "eta_cutoff": (0,),
        "diversity_penalty": (0,),
        "encoder_repetition_penalty": (1,),
        "length_penalty": (1,),
        "exponential_decay_length_penalty": (),
        "no_repeat_ngram_size": (0,),
        "encoder_no_repeat_ngram_size": (0,),
        "bad_words_ids": ([],),
        "force_words_ids": ([],),
        "constraints": ([],),
        "sequence_bias": ([], {}),
        "begin_suppress_tokens": ([],),
        "forced_bos_token_id": (),
        "forced_eos_token_id": (),
        "forced_decoder_ids": ([],),
        "renormalize_logits": (False, True),  # The pick is a softmax either way.
        "remove_invalid_values": (False,),
        "token_healing": (False,),
        "guidance_scale": (1,),
        "watermarking_config": (),
        "prompt_lookup_num_tokens": (),
    },
    # What every model's generation_config.json carries and no pick depends on.
    ignored=frozenset({"bos_token_id", "pad_token_id", "transformers_version", "_from_model_config", "use_cache"}),
    unrelated=words(
        "model messages prompt inputs input_ids attention_mask stream streamer cache_implementation cache_config "
        "return_dict_in_generate output_scores output_logits output_attentions output_hidden_states "
        "decoder_start_token_id assistant_model num_assistant_tokens logits_processor stopping_criteria"
    ),
    remedies={
        "max_length": "it counts the prompt too; give max_new_tokens",
        "min_length": "it counts the prompt too; give min_new_tokens",
        "no_repeat_ngram_size": "use a sampler config with an ngram_penalty",
        "bad_words_ids": "single tokens can stand in suppress_tokens",
        "num_return_sequences": "open a session for each sequence",
        "seed": "GenerationConfig has none; set SamplerConfig.seed beside the preset",
    },
)


def hugging_face_config(text: bytes, *, seed: int) -> SamplerConfig:
    """The config. Order: suppressed tokens, repetition_penalty, temperature, top_k, top_p, min_p, typical_p.

    | name               | values                   | default | becomes                                           |
    |--------------------|--------------------------|---------|---------------------------------------------------|
    | do_sample          | boolean                  | false   | false: greedy, and the next five change nothing   |
    | temperature        | above 0 (if do_sample)   | 1       | temperature                                       |
    | top_k              | whole, at least 0        | 50      | top_k; 0: off                                     |
    | top_p              | 0 to 1                   | 1       | top_p                                             |
    | min_p              | 0 to 1                   | none    | min_p                                             |
    | typical_p          | above 0, at most 1       | 1       | typical_p                                         |
    | repetition_penalty | above 0                  | 1       | window_penalty over all tokens, prompt included   |
    | max_new_tokens     | whole, at least 0        | none    | max_tokens                                        |
    | min_new_tokens     | whole, at least 0        | none    | min_tokens                                        |
    | stop_strings       | string or list           | none    | stop_strings                                      |
    | eos_token_id       | id or list               | none    | stop_ids                                          |
    | suppress_tokens    | list of ids              | none    | deny_ranges                                       |

    null is none; for top_k it is refused, since versions differ in what it means. There is no default of max_new_tokens
    here: the documented max_length of 20 counts the prompt, and is a length, no sampling. Other names are taken at the
    value that changes nothing. Raises InvalidField, TooLarge.
    """
    given = parameters_of(text, NAMES)
    sampled = _sampled_stages(given)
    picks = sampled if given.flag("do_sample", False) else (Greedy(),)
    repetition = given.number("repetition_penalty", 1, Span(0, above=True))
    return SamplerConfig(
        stages=(*deny_stages(given.ids("suppress_tokens")), *picks),
        seed=seed,
        max_tokens=given.integer("max_new_tokens", 0, least=0) if given.given("max_new_tokens") else None,
        min_tokens=given.integer("min_new_tokens", 0, least=0),
        stop_strings=given.texts("stop_strings", or_one=True),
        stop_ids=given.ids("eos_token_id", or_one=True),
        window_penalty=None if repetition == 1 else WindowPenalty(repetition=repetition),
    )


def _sampled_stages(given: Parameters) -> tuple[Stage, ...]:
    if "top_k" in given.values and not given.given("top_k"):
        raise InvalidField(f"{FIELD}.top_k", "null is off in some versions and 50 in others; give 0 or 50")
    temperature = given.number("temperature", 1, Span(0))
    if temperature == 0 and given.flag("do_sample", False):
        raise InvalidField(
            f"{FIELD}.temperature", "0.0 must be above 0 where do_sample is true; set do_sample to false"
        )
    return (
        *temperature_stages(temperature),
        *top_k_stages(given.integer("top_k", 50, least=0)),
        *top_p_stages(given.number("top_p", 1, Span(0, 1))),
        *min_p_stages(given.number("min_p", 0, Span(0, 1))),
        *typical_p_stages(given.number("typical_p", 1, Span(0, 1, above=True))),
    )

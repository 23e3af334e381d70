"""Fifty sessions for the toy runners: every kind of constraint, under every stage and penalty of a sampler config."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

from constraintd_client import (
    SamplerConfig,
    all_of,
    allow_list,
    allowed_tokens,
    banned_specials,
    choice,
    constraint,
    deny_ranges,
    gbnf,
    greedy,
    json_object,
    json_schema,
    lark,
    lazy,
    logit_bias,
    min_p,
    mirostat_v1,
    mirostat_v2,
    ngram_penalty,
    regex,
    sampler_config,
    split_l,
    split_p,
    structural_tag,
    tail_free,
    temperature,
    token_length,
    token_sequence,
    tool_calls,
    top_k,
    top_p,
    triggers,
    typical_p,
    window_penalty,
)
from constraintd_client.grammars import ConstraintLike
from google.protobuf.json_format import MessageToDict

from tests.daemon_process import AB, EOG, SECOND_A, TOOL, TOOL_TEXT

COUNT: Final = 50
_MAX_TOKENS: Final = 120
_ARGUMENTS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"day": {"type": "string", "format": "date"}, "n": {"type": "integer", "maximum": 99, "minimum": 0}},
    "required": ["day"],
    "additionalProperties": False,
}
_TOOLS: Final = [{"type": "function", "function": {"name": "plan", "parameters": _ARGUMENTS}}]
_PERSON: Final = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 30}, "tags": {"type": "array", "items": {"enum": [1, "b"]}}},
    "required": ["name", "tags"],
}
_TAG: Final = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<tool>"],
        "tags": [{"begin": "<tool>", "content": {"type": "json_schema", "json_schema": _ARGUMENTS}, "end": "</tool>"}],
    },
}

CONSTRAINTS: Final[dict[str, ConstraintLike]] = {
    "regex": regex("([a-z]{1,7} ){9,30}[.!]"),
    "json_schema": json_schema(_PERSON, whitespace="compact"),
    "unconstrained": None,
    "gbnf": gbnf('root ::= ("(" root ")" | [a-z] | "é")+'),
    "choice": choice(["yes", "yesterday", "no", "ab"]),
    "lark": lark('start: WORD ("," WORD){8,20}\nWORD: /[a-f]{2,5}/'),
    "lazy_word": lazy(regex("![0-9]{20}[.]"), triggers.word("!"), rearm=True),
    "tools_required": tool_calls(_TOOLS, choice="required", format="hermes", whitespace="compact"),
    "allowed_tokens": allowed_tokens([*b"abcdef ", AB, SECOND_A, TOOL]),
    "all_of": all_of(regex("[a-z ]{40,}"), deny_ranges([(ord("e"), ord("m"))]), token_length(30, 70)),
    "json_object": json_object(whitespace="compact"),
    "allow_list": allow_list([[*b"abc"], [*b"ab"], [AB, TOOL_TEXT, *b"z"]]),
    "tools_auto": tool_calls(_TOOLS, template=("<tool>", "</tool>"), whitespace="compact"),
    "token_sequence": token_sequence([*b"first "]),
    "lazy_token": lazy(json_schema(_ARGUMENTS), triggers.token(TOOL, exclusive=True)),
    "token_length": token_length(20, 60),
    "dead_end": all_of(regex("a{12}b"), regex("a{12}c")),
    "deny_ranges": deny_ranges([(0, 31), (127, 255)]),
    "structural_tag": structural_tag(_TAG, whitespace="compact"),
    "banned_specials": banned_specials([TOOL]),
    "gbnf_tokens": gbnf(f'root ::= [a-c]+ <[{TOOL}]> ("x" | !<[{AB}]>)+ "z"'),
}
SAMPLERS: Final[dict[str, SamplerConfig]] = {
    "greedy": sampler_config(greedy()),
    "temperature_top_k": sampler_config(temperature(0.8), top_k(40), stop_strings=["q", "!!"]),
    "top_p": sampler_config(top_p(0.9)),
    "min_p": sampler_config(min_p(0.02), temperature(1.3), min_tokens=25),
    "window_penalty": sampler_config(
        top_k(90), window_penalty=window_penalty(repetition=1.3, frequency=0.4, presence=0.2, window=32)
    ),
    "mirostat_v2": sampler_config(mirostat_v2(tau=4.0)),
    "ngram_penalty": sampler_config(temperature(0.6), ngram_penalty=ngram_penalty(max_count=0.5, repeat=1.4)),
    "typical_p": sampler_config(typical_p(0.8), stop_ids=[*b"aeiou"], min_tokens=20),
    "tail_free": sampler_config(tail_free(0.9), temperature(0.9)),
    "mirostat_v1": sampler_config(mirostat_v1(tau=3.0, eta=0.2)),
    "logit_bias": sampler_config(logit_bias({EOG: 4.0, ord("!"): 5.0, TOOL: 5.0}), min_tokens=15),
    "split_p": sampler_config(split_p(max_keep=20)),
    "split_l": sampler_config(split_l(min_keep=3), banned_specials=[TOOL]),
}


def write_sessions(path: Path) -> Path:
    """The file that the toys read: COUNT sessions, the same each time."""
    random_numbers = random.Random(20261130)
    entries = []
    for number in range(COUNT):
        _, wanted = _turn(CONSTRAINTS, number)
        _, sampler = _turn(SAMPLERS, number)
        entries.append(
            {
                "session_id": f"{number + 1:032x}",
                "constraint": MessageToDict(constraint(wanted)),
                "sampler": MessageToDict(sampler) | {"seed": str(random_numbers.getrandbits(64))},
                "prompt_tokens": random_numbers.choices(range(256), k=random_numbers.randrange(9)),
                "max_tokens": _MAX_TOKENS,
            }
        )
    path.write_text(json.dumps(entries))
    return path


def describe(number: int) -> str:
    """Which constraint and sampler a session has."""
    return f"session {number}: {_turn(CONSTRAINTS, number)[0]} under {_turn(SAMPLERS, number)[0]}"


def _turn(named: dict[str, Any], number: int) -> tuple[str, Any]:
    """They come round and round; their numbers have no common factor, so that the pairs differ."""
    return list(named.items())[number % len(named)]

"""The generations of the rolling restart: mixed constraints, each with a judge of its own for the finished text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jsonschema
from constraintd_client import (
    SamplerConfig,
    all_of,
    choice,
    constraint,
    gbnf,
    greedy,
    json_schema,
    lark,
    lazy,
    logit_bias,
    min_p,
    mirostat_v2,
    ngram_penalty,
    regex,
    sampler_config,
    temperature,
    token_length,
    tool_calls,
    top_k,
    top_p,
    triggers,
    window_penalty,
)
from constraintd_client.grammars import ConstraintLike
from google.protobuf.json_format import MessageToDict

from tests.tiny_decoder import FIRST_BYTE, byte_alphabet


@dataclass(frozen=True, slots=True)
class Request:
    """One generation. `satisfied` knows nothing of the daemon: it judges the text alone."""

    prompt: str
    constraint: ConstraintLike
    sampler: SamplerConfig
    satisfied: Callable[[str], bool]


_PERSON: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 120, "maxLength": 160, "pattern": "^[A-Za-z ]*$"},
        "scores": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "minItems": 40},
        "role": {"enum": ["reader", "writer", "owner"]},
    },
    "required": ["name", "scores", "role"],
    "additionalProperties": False,
}
_TOOL: Final[dict[str, Any]] = {
    "name": "look_up",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string", "minLength": 100, "maxLength": 130, "pattern": "^[a-z]*$"}},
        "required": ["word"],
        "additionalProperties": False,
    },
}
_WORDS: Final = "([a-z]{1,9}[ ,]|é ){90}[.]"
_CODE: Final = "([A-F]{3}-){70}[0-9]{4}"
_LATE: Final = "![0-9]{80}[.]"


def _matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


def _is_valid(schema: dict[str, Any]) -> Callable[[str], bool]:
    return lambda text: jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


def _is_call(text: str) -> bool:
    found = re.fullmatch(r"\s*<tool_call>(.*)</tool_call>\s*", text, re.DOTALL)
    call = {} if found is None else json.loads(found[1])
    return call.get("name") == _TOOL["name"] and _is_valid(_TOOL["parameters"])(json.dumps(call["arguments"]))


def _byte_id(character: str) -> int:
    return FIRST_BYTE + sorted(byte_alphabet()).index(character)


REQUESTS: Final[tuple[Request, ...]] = (
    Request("It was ", regex(_WORDS), sampler_config(greedy(), seed=1), _matches(_WORDS)),
    Request(
        "Once ",
        json_schema(_PERSON, whitespace="compact", property_order="declared"),
        sampler_config(temperature(0.9), top_k(40), seed=2),
        _is_valid(_PERSON),
    ),
    Request(
        "A list: ",
        gbnf('root ::= "[" item ("," item){99} "]"\nitem ::= [0-9]{1,3} | "(" item ")"'),
        sampler_config(top_p(0.9), seed=3, window_penalty=window_penalty(repetition=1.2, window=64)),
        _matches(r"\[(\(*\d{1,3}\)*,){99}\(*\d{1,3}\)*\]"),
    ),
    Request(
        "x = ",
        lark('start: WORD (" " NUMBER){60}\nWORD: /[a-f]{2,8}/\nNUMBER: /[0-9]{1,4}/'),
        sampler_config(min_p(0.05), temperature(1.3), seed=4, ngram_penalty=ngram_penalty(max_count=0.5)),
        _matches("[a-f]{2,8}( [0-9]{1,4}){60}"),
    ),
    Request("Well, ", choice(["yes", "no", "perhaps"]), sampler_config(seed=5), ["yes", "no", "perhaps"].__contains__),
    Request(
        "Code: ",
        all_of(regex(_CODE), token_length(max=400)),
        sampler_config(mirostat_v2(tau=2.5), seed=6),
        _matches(_CODE),
    ),
    # Free text of a model that knows no UTF-8: bytes that are no characters, and ones that wait for the rest.
    Request("Noise: ", None, sampler_config(temperature(1.5), seed=7, min_tokens=300, max_tokens=300), bool),
    Request(
        "Look: ",
        lazy(regex(_LATE), triggers.word("!")),
        sampler_config(
            logit_bias({_byte_id("!"): 9.0, _byte_id("."): 2.0}), top_k(60), seed=8, min_tokens=60, max_tokens=400
        ),
        _matches(f"[^!]*{_LATE}.*"),
    ),
    Request(
        "Call: ",
        tool_calls([{"type": "function", "function": _TOOL}], choice="required", single=True, format="hermes"),
        sampler_config(temperature(0.7), seed=9),
        _is_call,
    ),
)


def write_requests(path: Path) -> Path:
    """The file that the clients' `load` programs read."""
    entries = [
        {
            "prompt": each.prompt,
            "constraint": MessageToDict(constraint(each.constraint)),
            "sampler": MessageToDict(each.sampler),
        }
        for each in REQUESTS
    ]
    path.write_text(json.dumps(entries))
    return path

"""Python client of constraintd: text from a runner, or the runner kit for a runner of one's own.

`GenerationClient` asks a runner for constrained text. `ConstraintClient`, `DecodeStream` and `apply_mask`
are what a runner needs to drive sessions at the daemon. `constraintd_client.aio` has the same for asyncio.
"""

from . import errors, triggers
from .client import ConstraintClient
from .constraints import Constraint, ReasoningEnd, all_of, lazy, reasoning_end
from .decode_stream import DecodeStream
from .directive import Directive, Finish
from .errors import *  # noqa: F403 - the whole error tree; errors.__all__ lists it
from .generation import Generation, GenerationClient
from .generation_events import Delta, Event, Finished, Prompt, Started, Usage
from .grammars import (
    ConstraintLike,
    Grammar,
    choice,
    constraint,
    gbnf,
    json_object,
    json_schema,
    lark,
    regex,
    structural_tag,
)
from .keyword_report import KeywordReport
from .mask import MaskShapeError, allowed_ids, apply_mask
from .samplers import (
    SamplerConfig,
    SamplerStage,
    greedy,
    min_p,
    sampler_config,
    temperature,
    top_k,
    top_p,
)
from .session_handle import SessionHandle
from .token_rules import (
    allow_list,
    allowed_tokens,
    banned_specials,
    deny_ranges,
    token_length,
    token_sequence,
)
from .tools import CallTemplate, ToolAnswer, ToolCall, tool_calls
from .vocabulary import TokenTable, VocabularyInfo

__all__ = [
    "CallTemplate",
    "Constraint",
    "ConstraintClient",
    "ConstraintLike",
    "DecodeStream",
    "Delta",
    "Directive",
    "Event",
    "Finish",
    "Finished",
    "Generation",
    "GenerationClient",
    "Grammar",
    "KeywordReport",
    "MaskShapeError",
    "Prompt",
    "ReasoningEnd",
    "SamplerConfig",
    "SamplerStage",
    "SessionHandle",
    "Started",
    "TokenTable",
    "ToolAnswer",
    "ToolCall",
    "Usage",
    "VocabularyInfo",
    "all_of",
    "allow_list",
    "allowed_ids",
    "allowed_tokens",
    "apply_mask",
    "banned_specials",
    "choice",
    "constraint",
    "deny_ranges",
    "gbnf",
    "greedy",
    "json_object",
    "json_schema",
    "lark",
    "lazy",
    "min_p",
    "reasoning_end",
    "regex",
    "sampler_config",
    "structural_tag",
    "temperature",
    "token_length",
    "token_sequence",
    "tool_calls",
    "top_k",
    "top_p",
    "triggers",
    *errors.__all__,
]

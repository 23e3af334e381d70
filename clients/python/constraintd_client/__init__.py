"""Python client of constraintd: text from a runner, or the runner kit for a runner of one's own.

`GenerationClient` asks a runner for constrained text. `ConstraintClient`, `DecodeStream` and `apply_mask`
are what a runner needs to drive sessions at the daemon. `constraintd_client.aio` has the same for asyncio.
"""

from . import errors, triggers
from .access import Tls
from .client import ConstraintClient
from .constraints import Constraint, ReasoningEnd, all_of, lazy, reasoning_end
from .decode_stream import DecodeStream
from .directive import Directive, Finish, LogitAdjustments
from .errors import *  # noqa: F403 - the whole error tree; errors.__all__ lists it
from .generation import Generation, GenerationClient
from .generation_events import Delta, Event, Finished, Prompt, Started, Usage
from .grammars import (
    CompileLimits,
    ConstraintLike,
    Grammar,
    choice,
    compile_limits,
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
    deny_ranges_stage,
    greedy,
    ignored_ngrams,
    logit_bias,
    min_p,
    mirostat_v1,
    mirostat_v2,
    ngram_penalty,
    sampler_config,
    sampler_preset,
    split_l,
    split_p,
    tail_free,
    temperature,
    top_k,
    top_p,
    typical_p,
    window_penalty,
)
from .session_changes import Resumed, Turn
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
    "CompileLimits",
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
    "LogitAdjustments",
    "MaskShapeError",
    "Prompt",
    "ReasoningEnd",
    "Resumed",
    "SamplerConfig",
    "SamplerStage",
    "SessionHandle",
    "Started",
    "Tls",
    "TokenTable",
    "ToolAnswer",
    "ToolCall",
    "Turn",
    "Usage",
    "VocabularyInfo",
    "all_of",
    "allow_list",
    "allowed_ids",
    "allowed_tokens",
    "apply_mask",
    "banned_specials",
    "choice",
    "compile_limits",
    "constraint",
    "deny_ranges",
    "deny_ranges_stage",
    "gbnf",
    "greedy",
    "ignored_ngrams",
    "json_object",
    "json_schema",
    "lark",
    "lazy",
    "logit_bias",
    "min_p",
    "mirostat_v1",
    "mirostat_v2",
    "ngram_penalty",
    "reasoning_end",
    "regex",
    "sampler_config",
    "sampler_preset",
    "split_l",
    "split_p",
    "structural_tag",
    "tail_free",
    "temperature",
    "token_length",
    "token_sequence",
    "tool_calls",
    "top_k",
    "top_p",
    "triggers",
    "typical_p",
    "window_penalty",
    *errors.__all__,
]

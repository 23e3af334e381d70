"""Python client of constraintd: text from a runner, or the runner kit for a runner of one's own.

`GenerationClient` asks a runner for constrained text. `ConstraintClient`, `DecodeStream` and `apply_mask`
are what a runner needs to drive sessions at the daemon. `constraintd_client.aio` has the same for asyncio.
"""

from . import errors
from .client import ConstraintClient
from .decode_stream import DecodeStream
from .directive import Directive, Finish
from .errors import *  # noqa: F403 - the whole error tree; errors.__all__ lists it
from .generation import Generation, GenerationClient
from .generation_events import Delta, Event, Finished, Prompt, Started, Usage
from .grammars import ConstraintLike, Grammar, choice, constraint, json_object, json_schema, lark, regex
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
from .vocabulary import TokenTable, VocabularyInfo

__all__ = [
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
    "MaskShapeError",
    "Prompt",
    "SamplerConfig",
    "SamplerStage",
    "SessionHandle",
    "Started",
    "TokenTable",
    "Usage",
    "VocabularyInfo",
    "allowed_ids",
    "apply_mask",
    "choice",
    "constraint",
    "greedy",
    "json_object",
    "json_schema",
    "lark",
    "min_p",
    "regex",
    "sampler_config",
    "temperature",
    "top_k",
    "top_p",
    *errors.__all__,
]

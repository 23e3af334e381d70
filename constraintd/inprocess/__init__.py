"""The five reference APIs by name, in one process: the service's own engines and NumPy, no gRPC, nothing of the runner.

    errors                ConstraintError and its kinds, ConstrainedGenerateError and its two
    rows                  logits rows and what is legal in them
    matcher_constraint    any compiled grammar or composition as a TokenConstraint
    constrained_sampler   ConstrainedSampler: mask first, then any inner sampler
    generation            generate_constrained: the loop from a prompt to its completion
    grammar_sampler       GrammarSampler: a grammar applied to one generation, in place
    allow_list            AllowListConstraint: one of a list of token sequences

Models and inner samplers are passed in. SamplerState is the daemon's own. `docs/reference-apis.md` maps what the
documents of these APIs say, sentence by sentence, to the tests that show it.
"""

from __future__ import annotations

from constraintd.inprocess.allow_list import AllowListConstraint
from constraintd.inprocess.constrained_sampler import ConstrainedSampler, InnerSampler, TokenConstraint
from constraintd.inprocess.errors import (
    BrokenSampler,
    ConstrainedGenerateError,
    ConstraintError,
    EarlyEnd,
    ForbiddenToken,
    GenerateConstraintError,
    GenerateRuntimeError,
    NoTokenAllowed,
    VocabMismatch,
)
from constraintd.inprocess.generation import GenerationConfig, Model, generate_constrained
from constraintd.inprocess.grammar_sampler import GrammarSampler, MaskOutcome
from constraintd.inprocess.matcher_constraint import MatcherConstraint
from constraintd.inprocess.rows import Allowed, Row
from constraintd.sampler.state import SamplerState

__all__ = [
    "AllowListConstraint",
    "Allowed",
    "BrokenSampler",
    "ConstrainedGenerateError",
    "ConstrainedSampler",
    "ConstraintError",
    "EarlyEnd",
    "ForbiddenToken",
    "GenerateConstraintError",
    "GenerateRuntimeError",
    "GenerationConfig",
    "GrammarSampler",
    "InnerSampler",
    "MaskOutcome",
    "MatcherConstraint",
    "Model",
    "NoTokenAllowed",
    "Row",
    "SamplerState",
    "TokenConstraint",
    "VocabMismatch",
    "generate_constrained",
]

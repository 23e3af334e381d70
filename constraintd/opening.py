"""From an OpenSession request and its compiled grammars to a Session at its first Directive."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from constraintd.config import Limits
from constraintd.constraint import Constraint
from constraintd.constraint_plan import ConstraintPlan, part_name
from constraintd.errors import InvalidField, TooLarge
from constraintd.grammar.cache import Lease
from constraintd.grammar.honesty import verifier_of
from constraintd.reasoning import reasoning_of
from constraintd.sampler.config import check_sampler_config
from constraintd.session.session import Identity, Session, Verifier
from constraintd.translate import sampler_config_of
from constraintd.v1 import session_pb2
from constraintd.vocabulary.vocabulary import Vocabulary


def build_session(
    request: session_pb2.OpenSessionRequest,
    digest: bytes,
    vocabulary: Vocabulary,
    plan: ConstraintPlan,
    leases: Sequence[Lease],
    limits: Limits,
) -> Session:
    """The session. `leases` hold what became of `plan.refs`; `digest` tells this request from others.

    Takes as long as the first mask. Raises InvalidField, TooLarge, LimitExceeded.
    """
    config = sampler_config_of(request.sampler, seed=secrets.randbits(64))
    check_sampler_config(config, logits_width=vocabulary.logits_width, limits=limits)
    prompt = _prompt_of(request, vocabulary, limits)
    reasoning = None
    if request.HasField("reasoning_end"):
        reasoning = reasoning_of(request.reasoning_end, prompt, vocabulary)
    parts = plan.parts([lease.grammar for lease in leases], vocabulary, reasoning)
    identity = Identity(
        request.session_id,
        vocabulary,
        tuple(lease.grammar.grammar_id for lease in leases),
        config,
        prompt,
        digest,
        verifiers=tuple(
            Verifier(part_name(leases[ref].grammar), check)
            for ref in plan.eager
            if (check := verifier_of(leases[ref].source)) is not None
        ),
    )

    def start(held: Sequence[Lease] = leases) -> Constraint:
        """Holds the leases, so that the grammars are pinned while the session lives."""
        del held
        return Constraint.start(parts, vocabulary)

    bounds = (config.max_tokens, plan.max_tokens, limits.max_session_tokens)
    return Session(
        identity,
        start,
        min_tokens=max(config.min_tokens, plan.min_tokens),
        max_tokens=min(bound for bound in bounds if bound is not None),
    )


def _prompt_of(request: session_pb2.OpenSessionRequest, vocabulary: Vocabulary, limits: Limits) -> tuple[int, ...]:
    prompt = tuple(request.prompt_tokens)
    if len(prompt) > limits.max_prompt_tokens:
        raise TooLarge("prompt_tokens", limit=limits.max_prompt_tokens, actual=len(prompt), unit="tokens")
    known = max(vocabulary.logits_width, len(vocabulary.token_bytes))
    unknown = next((token for token in prompt if token >= known), None)
    if unknown is not None:
        raise InvalidField(
            f"prompt_tokens[{prompt.index(unknown)}]", f"{unknown} is not among the vocabulary's {known} ids"
        )
    return prompt

"""From an OpenSession request and its compiled grammars to a Session at its first Directive."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from constraintd.config import Limits
from constraintd.constraint_plan import ConstraintPlan
from constraintd.grammar.cache import Lease
from constraintd.replay import SettingsShelf
from constraintd.session.session import Identity, Session
from constraintd.settings_source import SettingsSource, checked_prompt, settings_of
from constraintd.translate_sampler import sampler_and_seed
from constraintd.v1 import session_pb2
from constraintd.vocabulary.vocabulary import Vocabulary


def build_session(
    request: session_pb2.OpenSessionRequest,
    digest: bytes,
    vocabulary: Vocabulary,
    plan: ConstraintPlan,
    leases: Sequence[Lease],
    limits: Limits,
    shelf: SettingsShelf,
) -> Session:
    """The session. `leases` hold what became of `plan.refs`; `digest` tells this request from others.

    Takes as long as the first mask. Raises InvalidField, TooLarge, LimitExceeded.
    """
    prompt = checked_prompt("prompt_tokens", request.prompt_tokens, vocabulary, limits.max_prompt_tokens)
    config, given = sampler_and_seed(request.sampler)
    source = SettingsSource(
        request.constraint,
        config,
        request.reasoning_end if request.HasField("reasoning_end") else None,
        seeded=given is not None,
    )
    seed = secrets.randbits(64) if given is None else given
    settings = shelf.shared(settings_of(source, plan, leases, prompt, vocabulary, limits), source)
    return Session.open(Identity(request.session_id, vocabulary, digest), settings, prompt, seed)

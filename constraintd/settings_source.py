"""What a caller asked for at one point of a session, and the settings that it becomes.

The messages are kept with the session, canonically encoded: whoever folds its log again, here or elsewhere, makes the
settings from them anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from constraintd.canonical_message import read_message, write_message
from constraintd.config import Limits
from constraintd.constraint import PartSpec
from constraintd.constraint_plan import ConstraintPlan, part_name, rule_part
from constraintd.encoding import Reader, Writer
from constraintd.engine.token_rules import FixedMask
from constraintd.errors import InvalidField, TooLarge
from constraintd.grammar.cache import Lease
from constraintd.grammar.grammar_bytes import grammar_bytes
from constraintd.reasoning import reasoning_of
from constraintd.sampler.checks import check_sampler_config
from constraintd.sampler.config import DenyRanges, SamplerConfig
from constraintd.sampler.settings import Settings
from constraintd.session.events import SessionSettings, SettingsRef, Verifier
from constraintd.translate_sampler import sampler_and_seed, sampler_config_message
from constraintd.v1 import sampler_pb2, session_pb2
from constraintd.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class SettingsSource:
    """What the caller said, the sampler config read but not yet checked. `seeded`: whether the seed is the caller's."""

    constraint: session_pb2.Constraint
    config: SamplerConfig
    reasoning_end: session_pb2.ReasoningEnd | None
    seeded: bool

    def changed_by(self, request: session_pb2.UpdateSessionRequest) -> tuple[SettingsSource, int | None]:
        """These with what the request changes, and the seed that it gives. Raises InvalidField, TooLarge."""
        config, seed = self.config, None
        if request.HasField("sampler"):
            config, seed = sampler_and_seed(request.sampler)
        if request.HasField("seed"):
            seed = request.seed
        changed = SettingsSource(
            request.constraint if request.HasField("constraint") else self.constraint,
            config,
            request.reasoning_end if request.HasField("reasoning_end") else self.reasoning_end,
            self.seeded or seed is not None,
        )
        return changed, seed

    @classmethod
    def decode(cls, data: bytes) -> SettingsSource:
        """What `settings_of` encoded. Raises InvalidEnvelope."""
        reader = Reader(data, "settings")
        constraint = read_message(reader, session_pb2.Constraint)
        sampler = read_message(reader, sampler_pb2.SamplerConfig)
        reasoning_end = read_message(reader, session_pb2.ReasoningEnd) if reader.flag() else None
        seeded = reader.flag()
        reader.end()
        return cls(constraint, sampler_and_seed(sampler)[0], reasoning_end, seeded)


def settings_of(
    source: SettingsSource,
    plan: ConstraintPlan,
    leases: Sequence[Lease],
    prompt: tuple[int, ...],
    vocabulary: Vocabulary,
    limits: Limits,
) -> SessionSettings:
    """The settings of a turn behind `prompt`. `leases` hold what became of `plan.refs`.

    Raises InvalidField, TooLarge.
    """
    config = source.config
    check_sampler_config(config, logits_width=vocabulary.logits_width, limits=limits)
    reasoning = None
    if source.reasoning_end is not None:
        reasoning = reasoning_of(source.reasoning_end, prompt, vocabulary)
    parts = plan.parts([lease.grammar for lease in leases], vocabulary, reasoning)
    bounds = [bound for bound in (config.max_tokens, plan.max_tokens) if bound is not None]
    sampling = Settings(
        vocabulary,
        config,
        (*parts, *_rules_of(config, vocabulary)),
        min_tokens=max(config.min_tokens, plan.min_tokens),
        max_tokens=min(bounds, default=limits.max_session_tokens),
        max_position=limits.max_session_tokens,
    )
    encoded = _encoded(source)
    named = [grammar_bytes(lease.source) for ref, lease in zip(plan.refs, leases, strict=True) if ref.source is None]
    contents = (encoded, *named)
    digests = [hashlib.sha256(blob).digest() for blob in contents]
    return SessionSettings(
        sampling,
        SettingsRef(digests[0], tuple(digests[1:])),
        dict(zip(digests, contents, strict=True)),
        tuple(lease.grammar.grammar_id for lease in leases),
        verifiers=tuple(
            Verifier(part_name(leases[ref].grammar), check)
            for ref in plan.eager
            if (check := leases[ref].verifier()) is not None
        ),
        verifies_slowly=any(leases[ref].verifies_slowly for ref in plan.eager),
        seeded=source.seeded,
        pins=tuple(leases),
    )


def _rules_of(config: SamplerConfig, vocabulary: Vocabulary) -> list[PartSpec]:
    """The config's deny ranges and banned specials, as rules of the mask. Raises InvalidField."""
    rules = [
        rule_part("deny ranges", FixedMask.without_ranges(stage.ranges, vocabulary), vocabulary)
        for stage in config.stages
        if isinstance(stage, DenyRanges)
    ]
    if config.banned_specials:
        mask = FixedMask.without_specials(config.banned_specials, vocabulary)
        rules.append(rule_part("banned specials", mask, vocabulary))
    return rules


def _encoded(source: SettingsSource) -> bytes:
    writer = Writer()
    write_message(writer, source.constraint)
    sampler = sampler_config_message(source.config)
    sampler.ClearField("seed")  # it stands in the log, where it changes
    write_message(writer, sampler)
    writer.flag(source.reasoning_end is not None)
    if source.reasoning_end is not None:
        write_message(writer, source.reasoning_end)
    writer.flag(source.seeded)
    return writer.getvalue()


def checked_prompt(field: str, tokens: Sequence[int], vocabulary: Vocabulary, limit: int) -> tuple[int, ...]:
    """A prompt's tokens. `limit`: how many there may be. Raises TooLarge, InvalidField."""
    prompt = tuple(tokens)
    if len(prompt) > limit:
        raise TooLarge(field, limit=limit, actual=len(prompt), unit="tokens")
    known = max(vocabulary.logits_width, len(vocabulary.token_bytes))
    unknown = next((token for token in prompt if token >= known), None)
    if unknown is not None:
        raise InvalidField(f"{field}[{prompt.index(unknown)}]", f"{unknown} is not among the vocabulary's {known} ids")
    return prompt

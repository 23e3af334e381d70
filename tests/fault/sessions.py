"""The sessions that faults are tried on: a few kinds, each with a text that is known from an undisturbed run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from constraintd_client import (
    ConstraintClient,
    Directive,
    SessionHandle,
    all_of,
    gbnf,
    json_schema,
    lazy,
    regex,
    token_length,
    triggers,
)
from constraintd_client.constraints import ConstraintLike
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.sampler_config import chain_of

from constraintd.v1 import sampler_pb2
from tests.daemon_process import BYTE_TABLE, EOG, SECOND_EOG, WIDTH
from tests.fault.model import Text
from tests.toy_runner import made_up_logits

_PERSON = json_schema(
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}
)


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What is asked for: a constraint, a sampler config, and the prompt of each turn."""

    name: str
    constraint: ConstraintLike
    sampler: sampler_pb2.SamplerConfig
    prompts: tuple[tuple[int, ...], ...]


def _sampler(seed: int, max_tokens: int = 24, **fields: object) -> sampler_pb2.SamplerConfig:
    return sampler_pb2.SamplerConfig(seed=seed, max_tokens=max_tokens, min_tokens=8, **fields)  # type: ignore[arg-type]


_PENALTIES = {
    "stages": [{"temperature": {"temperature": 1.3}}, {"mirostat_v2": {"tau": 4.0}}],
    "window_penalty": {"repetition": 1.3, "presence": 0.2},
    "ngram_penalty": {"window": 16, "max_count": 0.5, "ignored": {}},
}
KINDS: tuple[Kind, ...] = (
    Kind("regex", regex("[a-z ]{12,30}"), _sampler(1), (tuple(b"once "),)),
    Kind("mirostat and penalties", regex("[a-e ]{8,40}"), _sampler(2, 30, **_PENALTIES), (tuple(b"aa bb aa "),)),
    Kind("schema", _PERSON, _sampler(3, 40, stages=[{"top_k": {"k": 90}}]), (tuple(b"who: "),)),
    Kind("gbnf, two turns", gbnf('root ::= ("(" root ")" | [a-z])+'), _sampler(4, 14), (tuple(b"f"), tuple(b"then "))),
    Kind("lazy", lazy(regex("<a>[a-z]{2,4}</a>"), triggers.word("<"), rearm=True), _sampler(5, 20), ((60, 62),)),
    Kind("free, three turns", None, _sampler(6, 9, **_PENALTIES), ((1, 2, 3), (), (4, 5))),
    Kind("both", all_of(regex("[a-f]+"), token_length(max=18)), _sampler(7, 18, stop_strings=[b"fa"]), ((),)),
)


def kind_of(number: int) -> Kind:
    """The kind of session `number`."""
    return KINDS[number % len(KINDS)]


def session_id_of(run: str, number: int) -> bytes:
    """The id of a run's session `number`: whoever takes over can tell it, too."""
    return hashlib.sha256(f"{run} {number}".encode()).digest()[:16]


def register(client: ConstraintClient) -> str:
    """Registers the byte vocabulary; gives its id."""
    return client.register_vocabulary(
        "token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG]
    ).vocabulary_id


def pick(session: SessionHandle, fed: Sequence[int]) -> tuple[int, float]:
    """The token that every runner picks behind this model input, and its surprisal."""
    assert session.sampler is not None
    choice = MaskedPicker(chain_of(session.sampler)).pick(made_up_logits(fed), session.directive)
    return choice.token, choice.surprisal


def digest_of(directive: Directive) -> str:
    """Tells Directives apart: mask, draw, adjustments, mu, flags, finish, all of it."""
    changes = directive.adjustments
    told = (
        directive.position,
        None if directive.mask is None else directive.mask.tobytes(),
        directive.finish,
        directive.no_token_allowed,
        directive.draw,
        directive.settled_bytes,
        None if changes is None else (changes.ids.tobytes(), changes.scales.tobytes(), changes.offsets.tobytes()),
        directive.mu,
        (directive.awaiting_trigger, directive.allows_eog, directive.complete, directive.exhausted),
    )
    return hashlib.sha256(repr(told).encode()).hexdigest()[:12]


def config_digest_of(config: sampler_pb2.SamplerConfig | None) -> str:
    """Tells sampler configs apart."""
    assert config is not None
    return hashlib.sha256(config.SerializeToString(deterministic=True)).hexdigest()[:8]


def undisturbed(client: ConstraintClient, kind: Kind) -> Text:
    """The text that a session of this kind comes to where nothing goes wrong."""
    session = client.open_session(
        register(client), kind.constraint, sampler=kind.sampler, prompt_tokens=kind.prompts[0]
    )
    fed = list(kind.prompts[0])
    tokens: list[int] = []
    ends: list[int] = []
    directives: dict[tuple[int, int], str] = {}
    for turn in range(len(kind.prompts)):
        if turn:
            client.update_session(session, new_turn=kind.prompts[turn])
            fed += kind.prompts[turn]
        directives[turn, len(tokens)] = digest_of(session.directive)
        while session.directive.mask is not None:
            token, surprisal = pick(session, fed)
            client.step(session, [token], [surprisal])
            fed.append(token)
            tokens.append(token)
            directives[turn, len(tokens)] = digest_of(session.directive)
        assert session.directive.finish is not None, (kind.name, session.directive)
        ends.append(len(tokens))
    client.close_session(session.session_id)
    return Text(tuple(tokens), tuple(ends), directives, config_digest_of(session.sampler))

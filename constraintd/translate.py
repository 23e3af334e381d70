"""Messages to domain values and back. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from constraintd.errors import InvalidField
from constraintd.grammar.json_schema.report import KeywordReport, Policy, PropertyOrder, SchemaOptions, Whitespace
from constraintd.grammar.sandbox_protocol import CompileLimits
from constraintd.grammar.source import FEW_TEXTS, GrammarKind, GrammarSource
from constraintd.sampler.finish import Finish
from constraintd.session.directive import DenseMask, Directive
from constraintd.session.session import Session
from constraintd.translate_sampler import sampler_config_message
from constraintd.v1 import grammar_pb2, session_pb2, vocabulary_pb2
from constraintd.vocabulary.load import VocabularyFormat
from constraintd.vocabulary.vocabulary import Vocabulary

FORMATS = {
    vocabulary_pb2.VOCABULARY_FORMAT_TOKENIZER_JSON: VocabularyFormat.TOKENIZER_JSON,
    vocabulary_pb2.VOCABULARY_FORMAT_SENTENCEPIECE: VocabularyFormat.SENTENCEPIECE,
    vocabulary_pb2.VOCABULARY_FORMAT_TOKEN_TABLE: VocabularyFormat.TOKEN_TABLE,
    vocabulary_pb2.VOCABULARY_FORMAT_TIKTOKEN: VocabularyFormat.TIKTOKEN,
    vocabulary_pb2.VOCABULARY_FORMAT_TEKKEN: VocabularyFormat.TEKKEN,
}


_POLICIES = {
    grammar_pb2.SCHEMA_POLICY_UNSPECIFIED: Policy.STRICT,
    grammar_pb2.SCHEMA_POLICY_STRICT: Policy.STRICT,
    grammar_pb2.SCHEMA_POLICY_APPROXIMATE: Policy.APPROXIMATE,
}
_WHITESPACE = {
    grammar_pb2.JSON_WHITESPACE_UNSPECIFIED: Whitespace.BOUNDED,
    grammar_pb2.JSON_WHITESPACE_BOUNDED: Whitespace.BOUNDED,
    grammar_pb2.JSON_WHITESPACE_COMPACT: Whitespace.COMPACT,
    grammar_pb2.JSON_WHITESPACE_NATURAL: Whitespace.NATURAL,
}
_ORDERS = {
    grammar_pb2.PROPERTY_ORDER_UNSPECIFIED: PropertyOrder.ANY,
    grammar_pb2.PROPERTY_ORDER_ANY: PropertyOrder.ANY,
    grammar_pb2.PROPERTY_ORDER_DECLARED: PropertyOrder.DECLARED,
}


def session_id_of(value: bytes, field: str = "session_id") -> bytes:
    """Checks an id that a caller chose. Raises InvalidField."""
    if len(value) != 16:
        raise InvalidField(field, f"has {len(value)} bytes; choose 16 random ones")
    return value


def grammar_source_of(message: grammar_pb2.Grammar) -> GrammarSource:
    """The grammar as it came, unread. Raises InvalidField."""
    name = message.WhichOneof("source")
    if name is None:
        raise InvalidField("grammar", "has no source; set one, such as json_schema or regex")
    kind = GrammarKind(name)
    texts: Sequence[bytes]
    if kind is GrammarKind.CHOICE:
        texts = message.choice.texts
        if len(texts) <= FEW_TEXTS:  # many are taken out where they are read
            texts = tuple(texts)
    elif kind is GrammarKind.JSON_OBJECT:
        texts = []
    elif kind is GrammarKind.GBNF:
        texts = [message.gbnf.text, message.gbnf.root or b"root"]
    else:
        texts = [getattr(message, name)]
    return GrammarSource(kind, texts, schema_options_of(message.json_options))


def schema_options_of(message: grammar_pb2.JsonOptions) -> SchemaOptions:
    """The options, unset ones at their defaults. Raises InvalidField for values that this server does not know."""
    if message.policy not in _POLICIES:
        raise InvalidField("json_options.policy", f"{message.policy} is no policy that this server knows")
    if message.whitespace not in _WHITESPACE:
        raise InvalidField("json_options.whitespace", f"{message.whitespace} is no choice that this server knows")
    if message.property_order not in _ORDERS:
        raise InvalidField("json_options.property_order", f"{message.property_order} is none that this server knows")
    return SchemaOptions(
        _POLICIES[message.policy],
        _WHITESPACE[message.whitespace],
        message.formats_are_annotations,
        _ORDERS[message.property_order],
    )


def compile_limits_of(message: grammar_pb2.CompileLimits, default: CompileLimits) -> CompileLimits:
    """The limits that a request asks for, unset ones at their defaults."""
    return replace(
        default,
        seconds=message.time_ms / 1000 or default.seconds,
        memory_bytes=message.memory_bytes or default.memory_bytes,
        step_seconds=message.step_ms / 1000 or default.step_seconds,
    )


def report_messages(report: Sequence[KeywordReport]) -> list[grammar_pb2.KeywordReport]:
    """What is made of each keyword."""
    return [
        grammar_pb2.KeywordReport(
            pointer=entry.pointer,
            keyword=entry.keyword,
            verdict=grammar_pb2.KeywordVerdict.Value(f"KEYWORD_VERDICT_{entry.verdict.name}"),
            detail=entry.detail,
        )
        for entry in report
    ]


def vocabulary_message(vocabulary: Vocabulary) -> vocabulary_pb2.Vocabulary:
    """What is known of a vocabulary."""
    return vocabulary_pb2.Vocabulary(
        vocabulary_id=vocabulary.fingerprint,
        token_count=len(vocabulary.token_bytes),
        logits_width=vocabulary.logits_width,
        eog_ids=vocabulary.eog_ids,
        bos_id=vocabulary.bos_id,
        has_encoder=vocabulary.encoder is not None,
    )


def directive_message(directive: Directive) -> session_pb2.Directive:
    """The answer to a step."""
    message = session_pb2.Directive()
    fill_directive(message, directive)
    return message


def fill_directive(message: session_pb2.Directive, directive: Directive) -> None:
    """Writes the answer to a step into an empty message."""
    message.position = directive.position
    message.draw = directive.draw
    message.settled_bytes = directive.settled_bytes
    if directive.mu is not None:
        message.mu = directive.mu
    standing = directive.standing
    message.awaiting_trigger = standing.awaiting_trigger
    message.allows_eog = standing.allows_eog
    message.complete = standing.complete
    message.exhausted = standing.exhausted
    outcome = directive.outcome
    if isinstance(outcome, DenseMask):
        message.mask.dense = outcome.words
    elif isinstance(outcome, Finish):
        message.finish.CopyFrom(finish_message(outcome))
    else:
        message.no_token_allowed.message = outcome.message
    changes = directive.adjustments
    if changes is not None:
        message.adjustments.ids = changes.ids.astype("<u4", copy=False).tobytes()
        message.adjustments.scales = changes.scales.astype("<f8", copy=False).tobytes()
        message.adjustments.offsets = changes.offsets.astype("<f8", copy=False).tobytes()


def finish_message(finish: Finish) -> session_pb2.Finish:
    """A session's end."""
    return session_pb2.Finish(
        reason=session_pb2.FinishReason.Value(f"FINISH_REASON_{finish.reason.value}"),
        stop_string=finish.stop_string,
        stop_id=finish.stop_id,
        cut_offset=finish.cut_offset,
        constraint_incomplete=finish.constraint_incomplete,
        schema_satisfied=finish.schema_satisfied,
        schema_violation=finish.schema_violation,
    )


def session_message(session: Session, *, now: float) -> session_pb2.Session:
    """What is known of a session; `now` by the clock of `Session.last_step`."""
    directive = session.directive
    standing = directive.standing
    return session_pb2.Session(
        session_id=session.identity.session_id,
        vocabulary_id=session.identity.vocabulary.fingerprint,
        grammar_ids=session.log.settings.grammar_ids,
        position=session.position,
        prompt_length=session.log.input_length() - session.position,
        sampler=sampler_config_message(session.config),
        settled_bytes=directive.settled_bytes,
        finish=None if session.finish is None else finish_message(session.finish),
        idle_ms=max(0, int((now - session.last_step) * 1000)),
        awaiting_trigger=standing.awaiting_trigger,
        allows_eog=standing.allows_eog,
        complete=standing.complete,
        exhausted=standing.exhausted,
        mu=directive.mu,
        turn_position=session.turn_position,
    )

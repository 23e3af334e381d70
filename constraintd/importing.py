"""Sessions as bytes: out of one daemon, and into another that checks everything before it believes any of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from constraintd.config import Limits
from constraintd.constraint_plan import ConstraintPlan, GrammarRef, plan_constraint
from constraintd.envelope import Envelope, envelope_of, pack, unpack
from constraintd.errors import InvalidEnvelope, InvalidField, ReplayDiverged
from constraintd.grammar.cache import Lease
from constraintd.grammar.source import Grammar, parse_grammar
from constraintd.session.events import SessionSettings
from constraintd.session.log import Log, Mark, fold_checked
from constraintd.session.passes import Passes
from constraintd.session.session import Identity, Session
from constraintd.settings_source import SettingsSource, checked_prompt, settings_of
from constraintd.vocabulary.registry import VocabularyRegistry

_Planned = tuple[SettingsSource, ConstraintPlan, list[Lease]]


def exported(session: Session) -> bytes:
    """The session's envelope. Raises StepInFlight, LimitExceeded."""
    log, state = session.snapshot()
    grammars = {
        pin.source.grammar_id: pin.source for mark in log.marks for pin in mark.settings.pins if isinstance(pin, Lease)
    }
    identity = session.identity
    return pack(envelope_of(identity.session_id, identity.vocabulary.fingerprint, grammars, log, state))


class Importer:
    """Makes a session of an envelope, in three steps: `read`, then `settings`, which may compile, then `session`."""

    def __init__(
        self,
        vocabularies: VocabularyRegistry,
        limits: Limits,
        hold: Callable[[str, GrammarRef], Awaitable[Lease]],
    ) -> None:
        self._vocabularies = vocabularies
        self._limits = limits
        self._hold = hold

    def read(self, data: bytes) -> Envelope:
        """The envelope. Raises InvalidEnvelope; UnknownVocabulary for one whose vocabulary is not registered here."""
        envelope = unpack(data)
        self._vocabularies.get(envelope.vocabulary_id)
        limits = self._limits
        if len(envelope.tokens) > limits.max_session_tokens:
            raise InvalidEnvelope(
                f"envelope: {len(envelope.tokens)} tokens are more than this daemon's {limits.max_session_tokens}",
                location="tokens",
            )
        return envelope

    async def settings(self, envelope: Envelope) -> list[_Planned]:
        """For each of its settings what they need compiled. Raises InvalidEnvelope and what compiling raises."""
        sources = {grammar.grammar_id: grammar for grammar in map(self._checked, envelope.grammars)}
        planned = []
        for record in envelope.settings:
            source = SettingsSource.decode(record.source)
            plan = plan_constraint(source.constraint, self._limits)
            if len(plan.refs) != len(record.grammar_ids):
                raise _wrong("settings", f"{len(record.grammar_ids)} grammars, the constraint has {len(plan.refs)}")
            leases = [
                await self._lease(envelope.vocabulary_id, ref, grammar_id, sources)
                for ref, grammar_id in zip(plan.refs, record.grammar_ids, strict=True)
            ]
            planned.append((source, plan, leases))
        return planned

    def session(self, envelope: Envelope, planned: Sequence[_Planned], digest: bytes) -> Session:
        """The session, its log replayed token by token.

        Raises InvalidEnvelope; ReplayDiverged where a token is refused now, or another state comes out; LimitExceeded.
        """
        log = self._log(envelope, planned)
        state = fold_checked(log)
        session = Session(Identity(envelope.session_id, log.settings.sampling.vocabulary, digest), log)
        if state.to_bytes() != envelope.state or session.finish != envelope.finish:
            raise ReplayDiverged(
                "the log leads to another state here than the one in the envelope: this daemon's engines differ from "
                "the exporting one's; import it where the versions are the same (GetServerInfo.components)",
                position=log.position,
            )
        return session

    def _log(self, envelope: Envelope, planned: Sequence[_Planned]) -> Log:
        vocabulary = self._vocabularies.get(envelope.vocabulary_id)
        log = Log()
        made: dict[int, SessionSettings] = {}
        prompt: tuple[int, ...] = ()
        room = self._limits.max_prompt_tokens
        try:
            for index, mark in enumerate(envelope.marks):
                if mark.prompt is not None:
                    prompt = checked_prompt(f"marks[{index}].prompt", mark.prompt, vocabulary, room)
                    room -= len(prompt)
                if mark.settings not in made:
                    made[mark.settings] = settings_of(*planned[mark.settings], prompt, vocabulary, self._limits)
                log.marks.append(Mark(mark.position, made[mark.settings], mark.seed, mark.prompt))
        except InvalidField as error:
            raise InvalidEnvelope(f"envelope: {error.message}", **error.metadata) from None
        log.tokens.extend(envelope.tokens)
        log.surprisals.extend(envelope.surprisals)
        log.passes = Passes(envelope.passes)
        if log.passes.fed > log.input_length():
            raise _wrong("passes", f"they come to {log.passes.fed} tokens, the input has {log.input_length()}")
        return log

    def _checked(self, grammar: Grammar) -> Grammar:
        """The grammar, if its id is that of its contents."""
        texts = [text.encode() for text in grammar.texts]
        read = parse_grammar(grammar.kind, texts, max_bytes=self._limits.max_grammar_bytes, options=grammar.options)
        if read.grammar_id != grammar.grammar_id:
            raise _wrong("grammars", f"the text of grammar {grammar.grammar_id[:80]} has the id {read.grammar_id}")
        return read

    async def _lease(self, vocabulary_id: str, ref: GrammarRef, grammar_id: str, sources: dict[str, Grammar]) -> Lease:
        if grammar_id not in sources:
            raise _wrong("grammars", f"grammar {grammar_id[:80]} is missing")
        if ref.read is None and ref.grammar_id != grammar_id:
            raise _wrong(
                "settings", f"they name grammar {ref.grammar_id[:80]}, the log was made with {grammar_id[:80]}"
            )
        grammar = sources[grammar_id] if ref.read is None else ref.read()
        if grammar.grammar_id != grammar_id:
            raise _wrong("settings", f"their grammar is {grammar.grammar_id}, the log was made with {grammar_id[:80]}")
        size = sum(map(len, grammar.texts))
        return await self._hold(vocabulary_id, GrammarRef("", size, lambda: grammar))


def _wrong(location: str, problem: str) -> InvalidEnvelope:
    return InvalidEnvelope(f"envelope: {location}: {problem}", location=location)

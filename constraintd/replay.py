"""Records become a session again: settings are made anew from what named them, grammars compiled, the log folded."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from constraintd.config import Limits
from constraintd.constraint_plan import ConstraintPlan, GrammarRef, plan_constraint
from constraintd.errors import InvalidEnvelope, InvalidField
from constraintd.grammar.cache import Lease
from constraintd.grammar.grammar_bytes import grammar_of_bytes
from constraintd.session.events import SessionSettings, SettingsRef
from constraintd.session.log import Log
from constraintd.session.records import log_of, refs_in
from constraintd.settings_source import SettingsSource, checked_prompt, settings_of
from constraintd.vocabulary.vocabulary import Vocabulary

Hold = Callable[[str, GrammarRef], Awaitable[Lease]]
"""Holds a grammar of a vocabulary, compiled if need be."""
Blob = Callable[[bytes], Awaitable[bytes | None]]
"""A blob by its sha256; None if it is not there."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """Settings ready to be made for any prompt."""

    source: SettingsSource
    plan: ConstraintPlan
    leases: Sequence[Lease]


class SettingsShelf:
    """Settings in use, by what names them: sessions that ask for the same share one. Holds none of them alive."""

    def __init__(self) -> None:
        self._made: weakref.WeakValueDictionary[tuple[str, SettingsRef], SessionSettings] = (
            weakref.WeakValueDictionary()
        )

    def find(self, vocabulary_id: str, ref: SettingsRef) -> SessionSettings | None:
        """Those that are made already."""
        return self._made.get((vocabulary_id, ref))

    def shared(self, settings: SessionSettings, source: SettingsSource) -> SessionSettings:
        """The first of those that are equal to these. Where reasoning ends depends on the prompt: not shared."""
        if source.reasoning_end is not None:
            return settings
        return self._made.setdefault((settings.sampling.vocabulary.fingerprint, settings.ref), settings)


class Replay:
    """Makes logs from records. Used from one event loop; the second half of it may run in a thread."""

    def __init__(self, shelf: SettingsShelf, limits: Limits) -> None:
        self._shelf = shelf
        self._limits = limits

    def known(self, records: Sequence[bytes], vocabulary: Vocabulary) -> dict[SettingsRef, SessionSettings | None]:
        """The settings that records name; None for those that would have to be made. Raises InvalidEnvelope."""
        return {ref: self._shelf.find(vocabulary.fingerprint, ref) for ref in refs_in(records)}

    async def prepared(
        self, records: Sequence[bytes], vocabulary: Vocabulary, blob: Blob, hold: Hold
    ) -> Callable[[], Log]:
        """What makes the log, once everything that it needs is compiled.

        Raises InvalidEnvelope and what compiling raises; what it gives raises InvalidEnvelope and LimitExceeded.
        """
        known = self.known(records, vocabulary)
        planned = {ref: await self._planned(ref, vocabulary, blob, hold) for ref, made in known.items() if made is None}
        room = self._limits.max_prompt_tokens

        def resolve(ref: SettingsRef, prompt: tuple[int, ...]) -> SessionSettings:
            made = known[ref]
            if made is not None:
                return made
            found = planned[ref]
            try:
                checked_prompt("prompt", prompt, vocabulary, room)
                settings = settings_of(found.source, found.plan, found.leases, prompt, vocabulary, self._limits)
            except InvalidField as error:
                raise _unusable(error) from None
            if settings.ref != ref:
                raise InvalidEnvelope("settings: what they were made from is not in its canonical form")
            return self._shelf.shared(settings, found.source)

        return lambda: log_of(records, resolve)

    async def _planned(self, ref: SettingsRef, vocabulary: Vocabulary, blob: Blob, hold: Hold) -> _Planned:
        encoded = await self._named(ref.source, blob)
        try:
            source = SettingsSource.decode(encoded)
            plan = plan_constraint(source.constraint)
        except InvalidField as error:
            raise _unusable(error) from None
        by_id = sum(grammar.source is None for grammar in plan.refs)
        if by_id != len(ref.grammars):
            raise InvalidEnvelope(f"settings: {len(ref.grammars)} grammars, the constraint names {by_id} by id")
        left = iter(ref.grammars)
        leases = []
        for grammar in plan.refs:
            needed = grammar if grammar.source is not None else await self._kept(grammar.grammar_id, next(left), blob)
            leases.append(await hold(vocabulary.fingerprint, needed))
        return _Planned(source, plan, leases)

    async def _kept(self, grammar_id: str, digest: bytes, blob: Blob) -> GrammarRef:
        """A grammar that the constraint names by id, from its blob."""
        data = await self._named(digest, blob)
        grammar = grammar_of_bytes(data, max_bytes=self._limits.max_grammar_bytes)
        if grammar.grammar_id != grammar_id:
            raise InvalidEnvelope(f"settings: they name grammar {grammar_id[:80]}, kept is {grammar.grammar_id}")
        return GrammarRef(grammar_id, grammar)

    async def _named(self, digest: bytes, blob: Blob) -> bytes:
        data = await blob(digest)
        if data is None:
            raise InvalidEnvelope(f"settings: the blob {digest.hex()[:64]} that they were made from is missing")
        return data


def _unusable(error: InvalidField) -> InvalidEnvelope:
    return InvalidEnvelope(f"settings: {error.message}", **error.metadata)

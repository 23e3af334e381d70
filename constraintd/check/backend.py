"""Who is asked: the service's own code in this process, or a live daemon."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from constraintd.config import Limits
from constraintd.constraint_plan import GrammarRef, plan_constraint
from constraintd.errors import ConstraintdError
from constraintd.grammar.compiler import Compiled as Made
from constraintd.grammar.compiler import GrammarCompiler
from constraintd.grammar.honesty import report_of
from constraintd.grammar.json_schema.report import KeywordReport
from constraintd.grammar.sandbox import Sandbox
from constraintd.grammar.source import GrammarSource
from constraintd.opening import build_session
from constraintd.replay import SettingsShelf
from constraintd.sampler.finish import Finish
from constraintd.session.directive import DenseMask, Outcome
from constraintd.v1 import grammar_pb2, session_pb2
from constraintd.vocabulary.registry import VocabularyRegistry
from constraintd.vocabulary.vocabulary import Vocabulary


class Refused(Exception):
    """The grammar was refused."""

    def __init__(self, reason: str, message: str, location: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.location = location


@dataclass(frozen=True, slots=True)
class Compiled:
    """A grammar that compiled: how long that took, and what is made of its keywords."""

    compile_ms: float
    report: Sequence[KeywordReport]


@dataclass(slots=True)
class Walk:
    """A text's way through the masks. `taken` tokens were legal; `expected` are some that were legal where it ended."""

    accepted: bool
    taken: int
    why: str
    expected: list[int] = field(default_factory=list)
    mask_us: list[float] = field(default_factory=list)


class Backend(Protocol):
    """Compiles grammars and walks texts through their masks."""

    async def compile(self, grammar: grammar_pb2.Grammar) -> Compiled:
        """Raises Refused."""

    async def walk(self, constraint: session_pb2.Constraint, tokens: Sequence[int]) -> Walk:
        """Takes the tokens as long as their bits are set, then asks whether the text may end. Raises Refused."""


class InProcess:
    """The service's own code: its compile plane, its sessions."""

    def __init__(self, vocabulary: Vocabulary, compiler: GrammarCompiler, limits: Limits) -> None:
        self._vocabulary = vocabulary
        self._compiler = compiler
        self._limits = limits

    @classmethod
    @asynccontextmanager
    async def open(cls, vocabulary: Vocabulary, sandbox: Sandbox, limits: Limits) -> AsyncIterator[InProcess]:
        """One for this vocabulary; `sandbox` has been started."""
        registry = VocabularyRegistry(1)
        registry.add(vocabulary)
        compiler = GrammarCompiler(registry, sandbox, limits)
        try:
            await compiler.prepare(vocabulary)
            yield cls(vocabulary, compiler, limits)
        finally:
            compiler.close()

    async def compile(self, grammar: grammar_pb2.Grammar) -> Compiled:
        """See Backend."""
        try:
            plan = plan_constraint(session_pb2.Constraint(grammar=grammar))
            compiled = await self._compiled(plan.refs[0])
            return Compiled(compiled.seconds * 1e3, report_of(compiled.grammar))
        except ConstraintdError as error:
            raise _refused(error) from None

    async def walk(self, constraint: session_pb2.Constraint, tokens: Sequence[int]) -> Walk:
        """See Backend."""
        try:
            plan = plan_constraint(constraint)
            leases = [(await self._compiled(ref)).lease for ref in plan.refs]
            request = session_pb2.OpenSessionRequest(
                session_id=secrets.token_bytes(16),
                vocabulary_id=self._vocabulary.fingerprint,
                constraint=constraint,
            )
            digest = hashlib.sha256(request.SerializeToString()).digest()
            session = build_session(request, digest, self._vocabulary, plan, leases, self._limits, SettingsShelf())
        except ConstraintdError as error:
            raise _refused(error) from None
        timings: list[float] = []
        for taken, token in enumerate(tokens):
            outcome = session.directive.outcome
            if not (isinstance(outcome, DenseMask) and outcome.allows(token)):
                return Walk(False, taken, why_not(outcome), legal_tokens(outcome), timings)
            began = time.perf_counter()
            try:
                session.step(session.epoch, session.position, [token], [0.0])
            except ConstraintdError as error:
                return Walk(False, taken, error.message, [], timings)
            timings.append((time.perf_counter() - began) * 1e6)
        outcome = session.directive.outcome
        accepted, why = may_end(outcome, self._vocabulary.eog_ids)
        return Walk(accepted, len(tokens), why, [] if accepted else legal_tokens(outcome), timings)

    async def _compiled(self, ref: GrammarRef) -> Made:
        assert isinstance(ref.source, GrammarSource)  # there is no id to name a grammar by
        return await self._compiler.compile(self._vocabulary.fingerprint, await self._compiler.read(ref.source))


def _refused(error: ConstraintdError) -> Refused:
    return Refused(error.reason, error.message, error.metadata.get("location", ""))


def why_not(outcome: Outcome) -> str:
    """Why a token is not legal here, for people."""
    if isinstance(outcome, Finish):
        return "the text is complete here, and nothing can follow"
    if isinstance(outcome, DenseMask):
        return "this token is not allowed here"
    return outcome.message


def may_end(outcome: Outcome, eog_ids: Sequence[int]) -> tuple[bool, str]:
    """Whether the text may end here by its mask or finish, and how it stands, for people."""
    if isinstance(outcome, Finish):
        return not outcome.constraint_incomplete, "the text is complete"
    if isinstance(outcome, DenseMask):
        if outcome.allows(eog_ids[0]):
            return True, "the text may end here"
        return False, "all is taken, but the text is not complete"
    return False, outcome.message


def legal_tokens(outcome: Outcome) -> list[int]:
    """Some of the legal tokens, ascending; enough to show what was expected."""
    if not isinstance(outcome, DenseMask):
        return []
    found = (token for token in range(8 * len(outcome.words)) if outcome.allows(token))
    return [token for token, _ in zip(found, range(2000), strict=False)]

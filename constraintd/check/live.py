"""A live daemon as a backend, over gRPC."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from constraintd_client import ConstraintdError, Directive, TokenNotAllowed
from constraintd_client.aio import AsyncConstraintClient

from constraintd.check.backend import Compiled, Refused, Walk, legal_tokens, may_end
from constraintd.grammar.json_schema.report import KeywordReport, Verdict
from constraintd.sampler.finish import Finish, FinishReason
from constraintd.session.directive import DenseMask, NoTokenAllowed, Outcome
from constraintd.v1 import grammar_pb2, session_pb2
from constraintd.vocabulary.token_table import pack_vocabulary
from constraintd.vocabulary.vocabulary import Vocabulary


class Live:
    """One vocabulary at one daemon. A text goes in steps of many tokens, so timings are averages."""

    def __init__(self, client: AsyncConstraintClient, vocabulary_id: str, eog_ids: Sequence[int], step: int) -> None:
        self._client = client
        self._vocabulary_id = vocabulary_id
        self._eog_ids = eog_ids
        self._step = step

    @classmethod
    @asynccontextmanager
    async def open(cls, address: str, vocabulary: Vocabulary) -> AsyncIterator[Live]:
        """Registers the vocabulary, as a table, at the daemon there. Raises ConstraintdError of the client."""
        async with AsyncConstraintClient(address) as client:
            registered = await client.register_vocabulary(
                "token_table",
                pack_vocabulary(vocabulary),
                logits_width=vocabulary.logits_width,
                eog_ids=vocabulary.eog_ids,
            )
            info = await client.server_info()
            yield cls(client, registered.vocabulary_id, vocabulary.eog_ids, info.limits.max_step_tokens)

    async def compile(self, grammar: grammar_pb2.Grammar) -> Compiled:
        """See Backend."""
        try:
            began = time.perf_counter()
            report = await self._client.compile_report(self._vocabulary_id, grammar)
            seconds = time.perf_counter() - began
        except ConstraintdError as error:
            raise _refused(error) from None
        entries = [
            KeywordReport(entry.pointer, entry.keyword, Verdict[entry.verdict], entry.detail) for entry in report
        ]
        return Compiled(seconds * 1e3, entries)

    async def walk(self, constraint: session_pb2.Constraint, tokens: Sequence[int]) -> Walk:
        """See Backend."""
        try:
            session = await self._client.open_session(self._vocabulary_id, constraint)
        except ConstraintdError as error:
            raise _refused(error) from None
        timings: list[float] = []
        try:
            for begin in range(0, len(tokens), self._step):
                part = tokens[begin : begin + self._step]
                began = time.perf_counter()
                try:
                    await self._client.step(session, part, [0.0] * len(part))
                except ConstraintdError as error:
                    taken = begin + int(error.metadata.get("illegal_index", 0))
                    known = isinstance(error, TokenNotAllowed)
                    return Walk(False, taken, "this token is not allowed here" if known else error.message, [], timings)
                timings.append((time.perf_counter() - began) * 1e6 / len(part))
        finally:
            await self._client.close_session(session.session_id)
        outcome = _outcome(session.directive)
        accepted, why = may_end(outcome, self._eog_ids)
        return Walk(accepted, len(tokens), why, [] if accepted else legal_tokens(outcome), timings)


def _outcome(directive: Directive) -> Outcome:
    if directive.mask is not None:
        return DenseMask(directive.mask.tobytes())
    if directive.finish is not None:
        finish = directive.finish
        return Finish(FinishReason(finish.reason), finish.cut_offset, finish.constraint_incomplete)
    return NoTokenAllowed(directive.no_token_allowed or "no token is allowed here")


def _refused(error: ConstraintdError) -> Refused:
    return Refused(error.reason, error.message, error.metadata.get("location", ""))

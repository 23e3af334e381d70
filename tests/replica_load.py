"""Runners that keep sessions going through whatever happens to the daemons, and tell what they saw."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from constraintd_client import ConstraintClient, DecodeStream, SessionHandle, gbnf, json_schema, regex
from constraintd_client.backoff import Backoff
from constraintd_client.errors import (
    ConstraintdError,
)
from constraintd_client.grammars import ConstraintLike
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.sampler_config import chain_of

from constraintd.v1 import sampler_pb2
from tests.daemon_process import BYTE_TABLE, EOG, SECOND_EOG, WIDTH
from tests.toy_runner import generate, made_up_logits

T = TypeVar("T")

TOKENS: Final = 60
PROMPT: Final = [*b"once upon a time"]
_PATIENCE_SECONDS = 20.0
_PENALTIES: dict[str, object] = {
    "stages": [{"mirostat_v2": {"tau": 4.0}}],
    "ngram_penalty": {"window": 32, "max_count": 0.5},
}
_OBJECT = json_schema({"type": "object", "properties": {"a": {"type": "string", "minLength": 70}}, "required": ["a"]})

KINDS: Final[tuple[tuple[ConstraintLike, dict[str, object]], ...]] = (
    (regex("[a-z ]{80,}"), {}),
    (regex("([a-f]{3}-)*"), _PENALTIES),
    (_OBJECT, {"stages": [{"top_k": {"k": 90}}]}),
    (gbnf('root ::= ("(" root ")" | [a-z])*'), {"window_penalty": {"repetition": 1.3}}),
    (None, _PENALTIES),
    (regex("(?:ab|[x-z]){100}"), {"stages": [{"min_p": {"p": 0.02}}]}),
)
"""Constraint and sampler of the sessions that one runner has at once; each comes to TOKENS tokens exactly."""


def register(client: ConstraintClient) -> str:
    """Registers the byte vocabulary; gives its id."""
    found = client.register_vocabulary("token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG])
    return found.vocabulary_id


def open_kind(client: ConstraintClient, vocabulary_id: str, number: int, session_id: bytes) -> SessionHandle:
    """Opens a session of KINDS[number]."""
    constraint, fields = KINDS[number]
    sampler = sampler_pb2.SamplerConfig(seed=number, min_tokens=TOKENS, max_tokens=TOKENS, **fields)  # type: ignore[arg-type]
    return client.open_session(vocabulary_id, constraint, sampler=sampler, prompt_tokens=PROMPT, session_id=session_id)


def undisturbed(client: ConstraintClient) -> list[list[int]]:
    """The tokens that each of KINDS comes to where nothing happens."""
    vocabulary_id = register(client)
    opened = [open_kind(client, vocabulary_id, number, secrets.token_bytes(16)) for number in range(len(KINDS))]
    found = [generate(client, session, PROMPT, TOKENS + 1) for session in opened]
    for session in opened:
        client.close_session(session.session_id)
    return found


@dataclass(slots=True, eq=False)
class _Drive:
    """One session under way."""

    number: int
    session: SessionHandle
    picker: MaskedPicker
    fed: list[int] = field(default_factory=lambda: list(PROMPT))

    @property
    def tokens(self) -> list[int]:
        return self.fed[len(PROMPT) :]


@dataclass(frozen=True, slots=True)
class Ended:
    """A session that came to its end: what the runner took, and what the daemon says that it has."""

    number: int
    taken: list[int]
    kept: list[int]
    reason: str


class Runner(threading.Thread):
    """One client, one Decode stream, six sessions at a time; one of them steps by a unary call each time round.

    It owns nothing that a daemon needs. What it saw is for others to read once it has ended, `live` and `ended` before.
    """

    def __init__(self, address: str, affinity: str, stopping: threading.Event, *, pass_seconds: float = 0.02) -> None:
        """Opens new sessions until `stopping`, then ends those that it has. `pass_seconds`: of one forward pass."""
        super().__init__(name=f"runner {affinity}", daemon=True)
        self.affinity = affinity
        self.live: set[bytes] = set()
        self.ended: dict[bytes, Ended] = {}
        self.errors: list[tuple[float, ConstraintdError]] = []
        self.answers: list[float] = []
        """When each answer came, by time.monotonic."""
        self.failure: BaseException | None = None
        self._client = ConstraintClient(address, affinity=affinity, timeout=_PATIENCE_SECONDS)
        self.stopping = stopping
        self._pass_seconds = pass_seconds

    def run(self) -> None:
        """See the class."""
        try:
            with self._client:
                vocabulary_id = self._ask(lambda: register(self._client))
                with self._ask(lambda: self._client.decode_stream(vocabulary_id, WIDTH)) as stream:
                    while not self.stopping.is_set():
                        self._generate(stream, vocabulary_id)
        except BaseException as failure:
            self.failure = failure

    def longest_gap(self, begin: float, end: float) -> float:
        """Seconds without any answer, at most, among those that began in this time."""
        moments = [moment for moment in self.answers if moment >= begin - 1.0]
        gaps = itertools.pairwise(moments)
        return max((later - before for before, later in gaps if before < end and later > begin), default=0.0)

    def _generate(self, stream: DecodeStream, vocabulary_id: str) -> None:
        """One session of each kind, all at once, from beginning to end."""
        drives = [self._begin(vocabulary_id, number) for number in range(len(KINDS))]
        turn = 0
        while drives:
            time.sleep(self._pass_seconds)
            turn += 1
            picked = [drive.picker.pick(made_up_logits(drive.fed), drive.session.directive) for drive in drives]
            alone = turn % len(drives)
            reports = [(d.session, [c.token], [c.surprisal]) for d, c in zip(drives, picked, strict=True)]
            stream.send(reports[:alone] + reports[alone + 1 :])
            for place, (drive, choice, report) in enumerate(zip(drives, picked, reports, strict=True)):
                if place == alone:
                    self._ask(lambda report=report: self._client.step(*report))  # type: ignore[misc]
                else:
                    self._take(stream, report)
                self.answers.append(time.monotonic())
                drive.fed.append(choice.token)
            for drive in [each for each in drives if each.session.directive.mask is None]:
                drives.remove(drive)
                self._end(drive)

    def _begin(self, vocabulary_id: str, number: int) -> _Drive:
        session_id = secrets.token_bytes(16)
        session = self._ask(lambda: open_kind(self._client, vocabulary_id, number, session_id))
        self.live.add(session_id)
        assert session.sampler is not None
        return _Drive(number, session, MaskedPicker(chain_of(session.sampler)))

    def _end(self, drive: _Drive) -> None:
        session_id = drive.session.session_id
        kept = self._ask(lambda: self._client.get_session(session_id))
        finish = drive.session.directive.finish
        self.ended[session_id] = Ended(
            drive.number, drive.tokens, list(kept.tokens), "none" if finish is None else finish.reason
        )
        self.live.discard(session_id)
        self._ask(lambda: self._client.close_session(session_id))

    def _take(self, stream: DecodeStream, report: tuple[SessionHandle, Sequence[int], Sequence[float]]) -> None:
        backoff = Backoff()
        while True:
            try:
                stream.take(report[0], _PATIENCE_SECONDS)
            except ConstraintdError as error:
                self._saw(error, backoff)
                if stream.broken is None:
                    stream.send([report])
                else:
                    stream.reconnect(wait_for_ready=False)
            else:
                return

    def _ask(self, call: Callable[[], T]) -> T:
        backoff = Backoff()
        while True:
            try:
                return call()
            except ConstraintdError as error:
                self._saw(error, backoff)

    def _saw(self, error: ConstraintdError, backoff: Backoff) -> None:
        """Notes what passes by itself, and waits: the same call is sent again."""
        if not error.retryable:
            raise error
        now = time.monotonic()
        self.errors.append((now, error))
        if self.answers and now - self.answers[-1] > _PATIENCE_SECONDS:
            raise TimeoutError(f"no answer for {_PATIENCE_SECONDS} s") from error
        time.sleep(backoff.next_pause())

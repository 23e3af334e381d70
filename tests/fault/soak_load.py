"""What a soak does to a daemon and its runner: everything that clients do, and everything that they should not do.

Each worker goes round and round by itself. Whatever answers in another way than it should is a `Surprise`.
"""

from __future__ import annotations

import itertools
import random
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import grpc
from constraintd_client import (
    ConstraintClient,
    ConstraintdError,
    GenerationClient,
    SessionHandle,
    gbnf,
    json_schema,
    regex,
    sampler_config,
)

from constraintd.v1 import constraint_service_pb2, grammar_pb2, session_pb2
from tests.daemon_process import BYTE_TABLE, WIDTH, stub_for, upload
from tests.fault.sessions import KINDS, Kind, pick, register

_FRESH_GRAMMARS = 4096
"""New grammars come in a cycle of so many: far more than the caches hold."""


class Surprise(AssertionError):
    """The daemon or the runner did what it should not."""


class Load:
    """Workers on threads of this process. `done` counts what they did; `surprises` is what went wrong."""

    def __init__(self, daemon: str, runner: str, *, live: int) -> None:
        """`live` sessions are open at any time."""
        self.done: Counter[str] = Counter()
        self.surprises: list[str] = []
        self._daemon, self._runner, self._live = daemon, runner, live
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(name, work), name=name)
            for name, work in (
                ("steps", self._step_sessions),
                ("changes", self._change_sessions),
                ("bad", self._misbehave),
                ("generations", self._generate),
            )
        ]

    def start(self) -> None:
        """Begins."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends what is under way, and closes every session."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.surprises.append(f"{name}: {error!r}")

    # --- what clients do ---

    def _step_sessions(self) -> None:
        """Keeps `live` sessions stepping over one stream; each that ends is closed, and another one opened."""
        with ConstraintClient(self._daemon) as client:
            vocabulary_id = register(client)
            kinds = itertools.cycle(KINDS)
            open_: list[tuple[SessionHandle, list[int]]] = []
            with client.decode_stream(vocabulary_id, WIDTH) as stream:
                while not self._stop.is_set():
                    while len(open_) < self._live:
                        open_.append(_opened(client, vocabulary_id, next(kinds)))
                        self.done["opened"] += 1
                    picked = [(session, *pick(session, fed)) for session, fed in open_]
                    stream.send([(session, [token], [surprisal]) for session, token, surprisal in picked])
                    still = []
                    for (session, fed), (_, token, _) in zip(open_, picked, strict=True):
                        directive = stream.take(session, 30.0)
                        fed.append(token)
                        self.done["steps"] += 1
                        if directive.mask is not None:
                            still.append((session, fed))
                        else:
                            client.close_session(session.session_id)
                    open_ = still
                for session, _ in open_:
                    client.close_session(session.session_id)

    def _change_sessions(self) -> None:
        """Unary calls of every kind on short sessions, in grammars that are new again and again."""
        rng = random.Random(1)
        with ConstraintClient(self._daemon) as client:
            vocabulary_id = register(client)
            for number in itertools.cycle(range(_FRESH_GRAMMARS)):
                if self._stop.is_set():
                    return
                grammar = rng.choice((regex, _in_schema, _in_gbnf))(f"[a-z]{{3,9}}(x{number})?")
                session = client.open_session(vocabulary_id, grammar, sampler=sampler_config(seed=number))
                fed: list[int] = []
                self._walk(client, session, fed, 3)
                if session.directive.mask is None:  # it has ended already
                    client.close_session(session.session_id)
                    continue
                client.update_session(session, sampler=sampler_config(seed=number + 1))
                at = session.position
                self._walk(client, session, fed, 2)
                if session.directive.mask is not None:
                    client.rollback_session(session, at)
                fork = client.fork_session(session.session_id, session.position)
                envelope = client.export_session(fork.session_id)
                client.close_session(fork.session_id)
                taken = client.import_session(envelope)
                resumed = client.resume_session(taken.session_id)
                if resumed.session.position != session.position:
                    raise Surprise(f"{resumed.session.position} tokens came back, not {session.position}")
                for each in (session, taken):
                    client.close_session(each.session_id)
                self.done["changed"] += 1

    def _walk(self, client: ConstraintClient, session: SessionHandle, fed: list[int], count: int) -> None:
        for _ in range(count):
            if session.directive.mask is None:
                return
            token, surprisal = pick(session, fed)
            client.step(session, [token], [surprisal])
            fed.append(token)

    def _generate(self) -> None:
        """Generations at the runner; every third is cancelled in the middle."""
        with GenerationClient(self._runner) as client:
            for number in itertools.count():
                if self._stop.is_set():
                    return
                generation = client.generate(
                    "a",
                    constraint=regex("[a-z ]{20,60}"),
                    sampler=sampler_config(max_tokens=40, seed=number),
                )
                for pieces, _ in enumerate(generation):
                    if number % 3 == 0 and pieces == 2:
                        generation.cancel()
                        break
                self.done["generations"] += 1

    # --- what they should not do ---

    def _misbehave(self) -> None:
        """Each misdeed in turn, each answered by its typed error."""
        channel, stub = stub_for(self._daemon)
        with channel, ConstraintClient(self._daemon) as client:
            vocabulary_id = register(client)
            deeds = _misdeeds(stub, client, vocabulary_id)
            while not self._stop.is_set():
                next(deeds)
                self.done["misdeeds"] += 1


def _opened(client: ConstraintClient, vocabulary_id: str, kind: Kind) -> tuple[SessionHandle, list[int]]:
    session = client.open_session(vocabulary_id, kind.constraint, sampler=kind.sampler, prompt_tokens=kind.prompts[0])
    return session, list(kind.prompts[0])


def _in_schema(pattern: str) -> object:
    return json_schema({"type": "object", "properties": {"a": {"type": "string", "pattern": f"^{pattern}$"}}})


def _in_gbnf(pattern: str) -> object:
    return gbnf(f'root ::= [a-z]+ "{abs(hash(pattern)) % _FRESH_GRAMMARS}"')


def _misdeeds(stub: object, client: ConstraintClient, vocabulary_id: str) -> Iterator[None]:
    """Does one each time it is asked, for ever."""
    rng = random.Random(2)
    for number in itertools.count():
        text = secrets.token_hex(8)
        _refused(lambda text=text: client.compile_grammar(vocabulary_id, regex(f"({text}")), "INVALID_GRAMMAR")
        yield
        _refused(lambda: client.compile_grammar(vocabulary_id, json_schema({"type": "nothing"})), "INVALID_GRAMMAR")
        yield
        session = client.open_session(vocabulary_id, regex("[ab]{40}"))
        _refused(lambda s=session: client.step(s, [ord("z")], [1.0]), "TOKEN_NOT_ALLOWED")
        _refused(lambda s=session: client.step(s, [ord("a")], [-1.0]), "INVALID_SURPRISAL")
        stale = SessionHandle(session.session_id, session.epoch ^ 1, session.seed, session.directive)
        _refused(lambda s=stale: client.step(s, [ord("a")], [1.0]), "STALE_EPOCH")
        client.close_session(session.session_id)
        yield
        _refused(lambda: client.get_session(secrets.token_bytes(16)), "UNKNOWN_SESSION")
        yield
        # A call that its caller gives up: a compilation under way, an upload half sent, a stream without a Hello.
        slow = grammar_pb2.Grammar(choice=grammar_pb2.Choice(texts=[b"%d %d" % (number, i) for i in range(5000)]))
        call = stub.CompileGrammar.future(  # type: ignore[attr-defined]
            grammar_pb2.CompileGrammarRequest(vocabulary_id=vocabulary_id, grammar=slow)
        )
        threading.Event().wait(rng.random() * 0.02)
        call.cancel()
        yield
        half = itertools.islice(upload(BYTE_TABLE[: 1 << 10]), 1)
        with suppress(grpc.RpcError):
            stub.RegisterVocabulary(half)  # type: ignore[attr-defined]
        yield
        with suppress(grpc.RpcError):
            batch = constraint_service_pb2.StepBatch(steps=[session_pb2.Step(session_id=b"?")])
            list(stub.Decode(iter([constraint_service_pb2.DecodeRequest(step_batch=batch)])))  # type: ignore[attr-defined]
        yield


def _refused(call: Callable[[], object], reason: str) -> None:
    try:
        call()
    except ConstraintdError as error:
        if error.reason != reason:
            raise Surprise(f"{error.reason} instead of {reason}: {error}") from error
        return
    raise Surprise(f"taken, and not refused with {reason}")

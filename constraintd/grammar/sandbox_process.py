"""The compile helper's main: a small process that holds vocabularies and forks a child for every new grammar.

It has one thread and no gRPC, so forking is safe and costs a few milliseconds whatever the daemon's size. It reads
requests from the socket it was given, keeps each child to its wall-clock limit, tells a child that died without a
word from one that spoke, and ends when the daemon's side of the socket closes: no helper outlives its daemon.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field

from constraintd.grammar.engines import Engines
from constraintd.grammar.sandbox_child import engine_broke, over_depth, over_memory, over_time, run_child, stand_back
from constraintd.grammar.sandbox_probe import Prober
from constraintd.grammar.sandbox_protocol import (
    LENGTH,
    AddVocabulary,
    CancelTry,
    Errand,
    Faulted,
    Passed,
    Refused,
    Verdict,
    answer_frame,
    childs_request_of,
    most_said,
    parted,
    request_of,
    verdict_bytes,
    verdict_of,
)
from constraintd.grammar.sandbox_rehearsal import rehearse
from constraintd.grammar.source import GrammarKind

_PR_SET_PDEATHSIG = 1
# Before what nobody waits for, a burial or a fork ahead: a fork right behind an answer keeps the daemon from the core
# that it was just woken on, for 2 ms.
_QUIET_SECONDS = 0.001
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class _Fork:
    """A child without work, which waits for its request. `log_fd` is its error output, kept in memory."""

    pid: int
    request_fd: int
    verdict_fd: int
    log_fd: int

    def close(self) -> None:
        """Closes what leads to it."""
        for descriptor in (self.request_fd, self.verdict_fd, self.log_fd):
            os.close(descriptor)


@dataclass(slots=True)
class _Child:
    """A child at work."""

    errand: Errand
    pid: int
    verdict_fd: int
    log_fd: int
    ends_at: float
    said: bytearray = field(default_factory=bytearray)
    late: bool = False
    unwanted: bool = False


class Helper:
    """Owns the socket to the daemon, the vocabularies and the children. One thread.

    One child is forked ahead, rehearses and waits: forking (2 to 6 ms) and the first use of its memory (3 ms) are then
    no part of what a new grammar waits for.
    """

    def __init__(self, daemon: socket.socket) -> None:
        self._daemon = daemon
        self._vocabularies: dict[str, tuple[Engines, Prober]] = {}
        self._unusable: dict[str, str] = {}  # vocabulary -> trace of why
        self._children: dict[int, _Child] = {}
        self._last_used: tuple[Engines, Prober] | None = None
        self._spare: _Fork | None = None
        self._dying: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(daemon, selectors.EVENT_READ)

    def run(self) -> None:
        """Serves until the daemon's side closes; then ends every child."""
        try:
            while True:
                events = self._selector.select(self._patience())
                for key, _ in events:
                    if key.data is not None:
                        self._listen(key.data)
                    elif not self._serve():
                        return
                self._bury()
                if not events and self._needs_spare():
                    self._spare = self._fork(self._last_used)
                now = time.monotonic()
                for child in self._children.values():
                    if now >= child.ends_at and not child.late:
                        child.late = True
                        os.kill(child.pid, signal.SIGKILL)
        finally:
            self._drop_spare()
            for child in self._children.values():
                os.kill(child.pid, signal.SIGKILL)

    def _patience(self) -> float | None:
        now = time.monotonic()
        waits = [max(0.0, child.ends_at - now) for child in self._children.values() if not child.late]
        if self._dying or self._needs_spare():
            waits.append(_QUIET_SECONDS)
        return min(waits, default=None)

    def _needs_spare(self) -> bool:
        """Not while another child works: with few cores, it would be the next one that slows it down."""
        return self._spare is None and self._last_used is not None and not self._children

    def _serve(self) -> bool:
        """Reads and does one request; false when the daemon is gone."""
        head = self._receive(LENGTH.size)
        payload = None if head is None else self._receive(LENGTH.unpack(head)[0])
        if payload is None:
            return False
        match request_of(payload):
            case AddVocabulary() as request, _:
                self._add(request)
            case Errand(vocabulary_id=None) as errand, pickled:
                self._give(errand, pickled)
            case Errand() as errand, pickled:
                self._try(errand, pickled)
            case CancelTry(number), _:
                child = self._children.get(number)
                if child is not None:
                    child.unwanted = True
                    os.kill(child.pid, signal.SIGKILL)
        return True

    def _receive(self, size: int) -> memoryview | None:
        """Exactly `size` bytes, or none if the daemon closes before."""
        data = memoryview(bytearray(size))
        got = 0
        while got < size:
            piece = self._daemon.recv_into(data[got:], size - got, socket.MSG_WAITALL)
            if not piece:
                return None
            got += piece
        return data

    def _add(self, request: AddVocabulary) -> None:
        self._drop_spare()  # it would not know the vocabulary
        try:
            vocabulary = request.vocabulary()
            engines = Engines(vocabulary)
            engines.prepare(GrammarKind.JSON_SCHEMA)  # what nearly all grammars need; others are made on first use
            self._last_used = self._vocabularies[request.vocabulary_id] = engines, Prober(vocabulary)
        except Exception:
            self._unusable[request.vocabulary_id] = traceback.format_exc()
        # Children are forked from here on: what they share must not be touched by their collector's bookkeeping.
        gc.collect()
        gc.freeze()

    def _try(self, errand: Errand, pickled: memoryview) -> None:
        vocabulary_id = errand.vocabulary_id or ""
        known = self._vocabularies.get(vocabulary_id)
        if known is None:
            self._answer(errand, Faulted(self._unusable.get(vocabulary_id, "the vocabulary was never sent")))
            return
        self._last_used = known
        engines, _ = known
        if not engines.has(errand.kind):
            self._drop_spare()
        try:
            engines.prepare(errand.kind)
        except Exception:
            self._answer(errand, Faulted(traceback.format_exc()))
            return
        self._give(errand, pickled)

    def _give(self, errand: Errand, pickled: memoryview) -> None:
        """Gives a request to a child, the waiting one if there is one."""
        try:
            fork = self._take_spare() or self._fork()
            with os.fdopen(fork.request_fd, "wb") as pipe, contextlib.suppress(BrokenPipeError):
                pipe.write(pickled)  # a child that has died says so by its verdict
        except Exception:
            self._answer(errand, Faulted(traceback.format_exc()))
            return
        ends_at = time.monotonic() + errand.limits.seconds
        child = _Child(errand, fork.pid, fork.verdict_fd, fork.log_fd, ends_at)
        self._children[errand.number] = child
        self._selector.register(child.verdict_fd, selectors.EVENT_READ, child)

    def _take_spare(self) -> _Fork | None:
        """The child that waits, if it still does: short of memory, the kernel ends it first."""
        spare, self._spare = self._spare, None
        if spare is None or os.waitpid(spare.pid, os.WNOHANG)[0] == 0:
            return spare
        spare.close()
        return None

    def _drop_spare(self) -> None:
        spare = self._take_spare()
        if spare is not None:
            os.kill(spare.pid, signal.SIGKILL)
            os.waitpid(spare.pid, 0)
            spare.close()

    def _fork(self, rehearsed: tuple[Engines, Prober] | None = None) -> _Fork:
        """A child that waits for a request, and until it comes rehearses, if it is told with what.

        It knows the vocabularies and engines that are here by now.
        """
        requests, request_fd = os.pipe()
        verdict_fd, child_fd = os.pipe()
        log_fd = os.memfd_create("child-log")
        helper = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() == helper:  # it may have died before the line above
                    os.dup2(log_fd, 2)
                    os.close(verdict_fd)
                    os.close(request_fd)
                    self._let_go()
                    stand_back()
                    if rehearsed is not None:
                        rehearse(*rehearsed, lambda: bool(select.select([requests], [], [], 0)[0]))
                    with os.fdopen(requests, "rb") as pipe:
                        request = childs_request_of(pipe)
                    run_child(request, self._vocabularies, child_fd)
            finally:
                os._exit(1)
        os.close(child_fd)
        os.close(requests)
        os.set_blocking(verdict_fd, False)
        return _Fork(pid, request_fd, verdict_fd, log_fd)

    def _let_go(self) -> None:
        """Closes, in a fresh child, what belongs to the helper and its other children."""
        self._selector.close()
        self._daemon.close()
        for other in self._children.values():
            os.close(other.verdict_fd)
            os.close(other.log_fd)

    def _listen(self, child: _Child) -> None:
        """Takes what a child says; at the end of it, ends the child and passes the verdict on."""
        try:
            piece = os.read(child.verdict_fd, 1 << 16)
        except BlockingIOError:
            return
        child.said += piece
        if piece and len(child.said) <= most_said(child.said):
            return
        self._selector.unregister(child.verdict_fd)
        os.close(child.verdict_fd)
        del self._children[child.errand.number]
        os.kill(child.pid, signal.SIGKILL)  # it has closed its pipe, so it is done, or should be
        spoken = None if child.unwanted else _spoken(child)
        if spoken is not None or child.unwanted:
            # What it said stands whatever it dies of, and taking its memory apart takes the kernel 3 ms.
            self._dying.append(child.pid)
            if spoken is not None:
                self._say(child.errand, spoken)
        else:
            _, status = os.waitpid(child.pid, 0)
            log = os.pread(child.log_fd, 1 << 16, 0).decode("utf-8", "replace")
            self._answer(child.errand, _unspoken(child, status, log))
        os.close(child.log_fd)

    def _bury(self) -> None:
        """Takes leave of the children that have died meanwhile."""
        self._dying = [pid for pid in self._dying if os.waitpid(pid, os.WNOHANG)[0] == 0]

    def _answer(self, errand: Errand, verdict: Verdict) -> None:
        self._say(errand, verdict_bytes(verdict))

    def _say(self, errand: Errand, said: bytes | memoryview) -> None:
        for part in answer_frame(errand.number, said):
            self._daemon.sendall(part)


def _spoken(child: _Child) -> bytes | memoryview | None:
    """What a child said, for the daemon; None if it did not come to its verdict."""
    try:
        said = memoryview(child.said)
        _, payload = parted(said)
        if not payload:
            return None
        return said if isinstance(verdict_of(said), Passed) else payload
    except ValueError as error:
        return verdict_bytes(Refused.by(engine_broke(child.errand, str(error)), lasting=False))


def _unspoken(child: _Child, status: int, log: str) -> Verdict:
    """What the death of a child says that said nothing."""
    errand = child.errand
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if child.late or number == signal.SIGXCPU:
        return Refused.by(over_time(errand))
    if number in (signal.SIGSEGV, signal.SIGBUS):
        return Refused.by(over_depth(errand))
    if number == signal.SIGKILL:  # not ours: the kernel's, short of memory
        return Refused.by(over_memory(errand), lasting=False)
    if "memory allocation" in log or "MemoryError" in log:
        return Refused.by(over_memory(errand))
    how = f"signal {signal.Signals(number).name}" if number else f"exit status {os.waitstatus_to_exitcode(status)}"
    return Refused.by(engine_broke(errand, f"{how} {log.strip()[-200:]}".strip()))


def main() -> None:
    """Runs on the socket whose descriptor is the only argument."""
    # The daemon drains on these; the helper has to last as long as it does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Helper(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()

"""Real daemons and runners for cases: two that stay, started when first asked for, and others that a case may end."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from constraintd.v1 import session_pb2
from tests.daemon_process import daemon_process, stub_for
from tests.runner_process import RunningRunner, mortal_runner, runner_process
from tests.served_process import ServedProcess
from tests.tiny_decoder import write_genai_folder

from .expect import CaseFailed


class Places:
    """Use it in a with statement, which ends all that it started."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._daemon: str | None = None
        self._runner: str | None = None
        self._model: Path | None = None

    @property
    def daemon(self) -> str:
        """The address of the daemon that stays."""
        if self._daemon is None:
            self._daemon = self._stack.enter_context(daemon_process())
        return self._daemon

    @property
    def runner(self) -> str:
        """The address of the runner that stays, at the daemon that stays."""
        if self._runner is None:
            self._runner = self._stack.enter_context(runner_process(self.model, self.daemon, "--threads", "1"))
        return self._runner

    @property
    def model(self) -> Path:
        """The folder of a random decoder with a real tokenizer, a few hundred KB."""
        if self._model is None:
            self._model = write_genai_folder(self.folder())
        return self._model

    def folder(self) -> Path:
        """A new one, with a name that is short enough for a socket, until the end."""
        path = Path(tempfile.mkdtemp(prefix="cdc-"))
        self._stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    @contextmanager
    def other_runner(self) -> Iterator[RunningRunner]:
        """One more at the daemon that stays, which the case may kill."""
        with mortal_runner(self.model, self.daemon, "--threads", "1") as runner:
            yield runner

    @contextmanager
    def mortal_daemon(self, *arguments: str, store: str = "sqlite") -> Iterator[MortalDaemon]:
        """One on a store and a socket of its own, which the case may end and start again."""
        daemon = MortalDaemon(self.folder(), *arguments, store=store)
        try:
            yield daemon
        finally:
            daemon.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


class MortalDaemon:
    """A daemon at one Unix socket and one store, as often as it is started."""

    def __init__(self, folder: Path, *arguments: str, store: str) -> None:
        self._folder = folder
        self.address = f"unix:{folder}/d.sock"
        self.second_address = f"unix:{folder}/e.sock"
        """Nobody is there, but for one that is started there."""
        self._store = "memory" if store == "memory" else f"{store}:{folder}/sessions"
        self._process = self._started(self.address, arguments)

    def start(self, *arguments: str, at: str = "") -> None:
        """Starts another one in its place, or at the second address, once it has ended."""
        self.ended()
        self._process.__exit__(None, None, None)
        self._process = self._started(at or self.address, arguments)

    def _started(self, address: str, arguments: Sequence[str]) -> ServedProcess:
        own = ("--listen", address, "--store", self._store, "--no-sandbox", "--drain-seconds", "5")
        process = ServedProcess(self._folder, *own, *arguments)
        if not process.addresses:
            raise CaseFailed(f"the daemon did not start; its log: {process.log}")
        return process

    def kill(self) -> None:
        """SIGKILL: nothing is said or written any more."""
        self._process.signal(signal.SIGKILL)
        self.ended()

    def drain(self) -> None:
        """SIGTERM, without waiting for anything."""
        self._process.signal(signal.SIGTERM)

    def freeze(self) -> None:
        """It does nothing until `thaw`."""
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undoes `freeze`."""
        self._process.signal(signal.SIGCONT)

    def ended(self, within: float = 20.0) -> int:
        """Waits until it has ended; gives its exit status. Raises CaseFailed if it lives on."""
        until = time.monotonic() + within
        while (status := self._process.process.poll()) is None:
            if time.monotonic() > until:
                raise CaseFailed(f"the daemon did not end within {within} s; its log: {self._process.log}")
            time.sleep(0.01)
        return status

    def clear(self) -> None:
        """Ends it for good."""
        self._process.__exit__(None, None, None)


def logged_tokens(daemon: str, session_id: str) -> list[int]:
    """A session's accepted tokens as the daemon itself has them, asked for without any client."""
    channel, stub = stub_for(daemon)
    with channel:
        request = session_pb2.GetSessionRequest(session_id=bytes.fromhex(session_id))
        return list(stub.GetSession(request, timeout=30, wait_for_ready=True).tokens)

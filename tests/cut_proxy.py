"""A Unix socket that forwards to another one, and whose connections a test can cut."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class CutProxy:
    """Forwards every connection until `cut`; refuses new ones while it is `shut`."""

    def __init__(self, path: Path, target: str) -> None:
        self.address = f"unix:{path}"
        self.connections = 0
        self._path = path
        self._target = target.removeprefix("unix:")
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listen()

    def cut(self) -> None:
        """Ends all connections; new ones are taken."""
        with self._lock:
            ending, self._open = self._open, []
        for end in ending:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def shut(self) -> None:
        """Ends all connections, and refuses new ones until `reopen`."""
        self._path.unlink()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def reopen(self) -> None:
        """Takes connections again."""
        self._listen()

    def _listen(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._target)
            with self._lock:
                self.connections += 1
                self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_forward, args=(source, sink), daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def cut_proxy(target: str) -> Iterator[CutProxy]:
    """A proxy in front of a Unix socket's address."""
    folder = Path(tempfile.mkdtemp(prefix="constraintd-proxy-"))
    proxy = CutProxy(folder / "socket", target)
    try:
        yield proxy
    finally:
        with suppress(OSError):
            proxy.shut()
        shutil.rmtree(folder, ignore_errors=True)

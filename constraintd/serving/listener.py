"""Opens a server's listeners: TCP with or without TLS, and Unix sockets with a mode."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Protocol

import grpc

from constraintd.serving.addresses import is_unix, socket_path


class CannotListen(Exception):
    """An address can't be listened on; the message says which and why."""


class Server(Protocol):
    """What of a gRPC server is needed here, sync or asyncio."""

    def add_insecure_port(self, address: str, /) -> int: ...
    def add_secure_port(self, address: str, credentials: grpc.ServerCredentials, /) -> int: ...


class Listener:
    """One address of one server. Owns its socket's file, if it has one, from `open` to `remove`."""

    def __init__(self, address: str, *, mode: int, credentials: grpc.ServerCredentials | None) -> None:
        """`mode`: of a Unix socket's file. `credentials`: for TCP; a Unix socket is protected by its mode."""
        self._address = address
        self._path = socket_path(address)
        self._mode = mode
        self._credentials = None if is_unix(address) else credentials
        self._identity: tuple[int, int] | None = None

    def open(self, server: Server) -> str:
        """Listens, once the server starts; gives the address with its port filled in. Raises CannotListen."""
        if self._path is None:
            port = self._bind(server)
            return self._address if is_unix(self._address) else f"{self._address.rpartition(':')[0]}:{port}"
        _clear(self._path)
        # The file never has more rights than it shall have, not even for the instant before a chmod.
        before = os.umask(0o777 & ~self._mode)
        try:
            self._bind(server)
        finally:
            os.umask(before)
        self._identity = _identity(self._path)
        return self._address

    def remove(self) -> None:
        """Removes the socket's file, unless it is another server's by now."""
        if self._path is not None and self._identity is not None and _identity(self._path) == self._identity:
            self._path.unlink(missing_ok=True)

    def _bind(self, server: Server) -> int:
        try:
            if self._credentials is not None:
                return server.add_secure_port(self._address, self._credentials)
            return server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise CannotListen(
                f"can't listen on {self._address}: {error}; is another server there, or the folder missing?"
            ) from None


def _clear(path: Path) -> None:
    """Removes the file that a dead server left. Raises CannotListen for one that is in use, or no socket."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotListen(f"can't listen on {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotListen(f"can't listen on {path}: a file that is no socket is there; remove it or name another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise CannotListen(
                f"can't listen on {path}: a socket is there, and whether somebody answers can't be told "
                f"({error.strerror or error}); end its server or remove it"
            ) from None
        else:
            raise CannotListen(f"can't listen on {path}: a server answers there already; end it or name another path")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

"""How a client shows who it is, and checks whom it talks to: TLS, mutual TLS and bearer tokens."""

from __future__ import annotations

import contextlib
import ipaddress
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from .transport import Metadata

_Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. They are read for each new connection, so that renewed ones are taken up."""

    ca: Path | None = None
    """Authorities that may have signed the server's certificate; None: those that gRPC brings along."""
    cert: Path | None = None
    """This client's own certificate chain, for mutual TLS."""
    key: Path | None = None
    """Its key."""
    server_name: str | None = None
    """What the server's certificate must be for; None: the target's host."""


class Access:
    """A client's TLS and token. Any number of threads may ask."""

    def __init__(
        self, targets: Sequence[str], tls: Tls | None, token: str | Path | None, *, allow_plaintext_token: bool
    ) -> None:
        """`token`: itself, or a file that holds it, which is read again when it changes.

        Raises ValueError for a token that would travel in the clear to another machine, or can't be one; OSError for a
        file that can't be read.
        """
        if tls is not None and (tls.cert is None) != (tls.key is None):
            raise ValueError("mutual TLS needs both a certificate and its key")
        if token is not None and tls is None and not allow_plaintext_token:
            for target in targets:
                if not is_local(target):
                    raise ValueError(
                        f"{target} is another machine and has no TLS: the token would travel there in the clear; give "
                        "tls, or allow_plaintext_token=True if something else protects the way"
                    )
        self._tls = tls
        self._file = token if isinstance(token, Path) else None
        self._lock = threading.Lock()
        self._stamp: _Stamp = None
        self._token = None if token is None else _read(token) if isinstance(token, Path) else _checked(token, "token")
        if self._file is not None:
            self._stamp = _stamp_of(self._file)
        # What can't be read is told now; later, while files are being replaced, the last ones that could be do.
        self._credentials = None if tls is None else _credentials_of(tls)

    def metadata(self) -> Metadata:
        """The headers that a call needs to be let in."""
        if self._file is not None:
            self._look_again(self._file)
        return () if self._token is None else (("authorization", f"Bearer {self._token}"),)

    def version(self) -> object:
        """Differs from an earlier one if a channel should be opened anew."""
        if self._tls is None:
            return None
        return tuple(_stamp_of(path) for path in (self._tls.ca, self._tls.cert, self._tls.key) if path is not None)

    def open(self, plain: Any, secure: Any, target: str, options: Sequence[tuple[str, Any]]) -> Any:
        """A channel, made by gRPC's functions for the one or the other kind. A Unix socket needs no TLS: whoever may
        open its file has been let in.
        """
        if self._tls is None or target.startswith(("unix:", "unix-abstract:")):
            return plain(target, options=options)
        if self._tls.server_name is not None:
            options = [*options, ("grpc.ssl_target_name_override", self._tls.server_name)]
        with contextlib.suppress(OSError):
            self._credentials = _credentials_of(self._tls)
        return secure(target, self._credentials, options=options)

    def _look_again(self, file: Path) -> None:
        stamp = _stamp_of(file)
        if stamp == self._stamp:
            return
        with self._lock:
            self._stamp = stamp
            try:
                self._token = _read(file)
            except (OSError, ValueError):
                return  # being replaced: the old one may do until the file changes again


def _credentials_of(tls: Tls) -> grpc.ChannelCredentials:
    ca, key, cert = (None if path is None else path.read_bytes() for path in (tls.ca, tls.key, tls.cert))
    return grpc.ssl_channel_credentials(ca, key, cert)


def is_local(target: str) -> bool:
    """Whether the target is on this machine for sure: a Unix socket, localhost, or a loopback address."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    for scheme in ("dns:///", "dns:", "ipv4:", "ipv6:"):
        target = target.removeprefix(scheme)
    return all(_is_loopback(part.rpartition(":")[0]) for part in target.split(","))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    bracketed = host.startswith("[") and host.endswith("]")
    if ":" in host and not bracketed:
        return False  # gRPC reads ::1:5005 as one address, without a port
    try:
        return ipaddress.ip_address(host[1:-1] if bracketed else host).is_loopback
    except ValueError:
        return False


def _read(file: Path) -> str:
    return _checked(file.read_text(encoding="ascii", errors="replace"), str(file))


def _checked(text: str, place: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"{place}: expected one token, of visible ASCII characters")
    return token


def _stamp_of(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns

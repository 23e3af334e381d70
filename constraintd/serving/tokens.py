"""Bearer tokens: who may call. The server keeps hashes alone, in a file that is read again when it changes.

A line is `NAME SHA256`, or `NAME SHA256 until=2027-01-31T00:00:00Z`; `#` begins a comment. The hash is plain sha256:
a token is 256 random bits, which no dictionary holds, so a slow hash would only slow down every call.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from constraintd.serving.settings import BadConfig

_log = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 1.0
_MAX_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Token:
    """What the server knows of one."""

    name: str
    digest: bytes
    """sha256 of the token."""
    until: float | None = None
    """Unix time from which on it is refused."""

    def line(self) -> str:
        """Its line in the file."""
        end = "" if self.until is None else f" until={datetime.fromtimestamp(self.until, UTC):%Y-%m-%dT%H:%M:%SZ}"
        return f"{self.name} {self.digest.hex()}{end}"


class Refused(Exception):
    """No token, or none that is known now. The message says which of the two, and nothing about the known ones."""


OPEN_METHODS: Final = "/grpc.health."
"""How methods begin that need no token: those who probe have none."""


def authorization_of(metadata: Sequence[tuple[str, str | bytes]]) -> list[str]:
    """A call's `authorization` headers."""
    return [value for key, value in metadata if key == "authorization" and isinstance(value, str)]


def new_token(name: str, until: float | None = None) -> tuple[str, Token]:
    """A token for its bearer, and what the server is told of it. Raises ValueError for a name that can't be used."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name: 1 to 64 letters, digits and any of . _ @ - are")
    text = "cdt_" + secrets.token_urlsafe(32)
    return text, Token(name, hashlib.sha256(text.encode()).digest(), until)


class TokensFile:
    """The tokens in force. Any thread may ask."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Reads the file. Raises BadConfig."""
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp = _stamp_of(path)
        self._tokens = _read(path)
        self._looked = time.monotonic()

    def bearer(self, authorization: Sequence[str]) -> str:
        """The name of the one who calls, from the call's `authorization` headers. Raises Refused."""
        self._look_again()
        if not authorization:
            raise Refused("this server takes calls with a token alone: send `authorization: Bearer TOKEN`")
        scheme, _, text = authorization[0].partition(" ")
        if len(authorization) > 1 or scheme.lower() != "bearer" or not text:
            raise Refused("expected one header `authorization: Bearer TOKEN`")
        digest = hashlib.sha256(text.strip().encode()).digest()
        found: Token | None = None
        for token in self._tokens:  # all of them, so that the time does not tell which one was near
            if hmac.compare_digest(token.digest, digest):
                found = token
        if found is None:
            raise Refused("the token is not known here; it may have been withdrawn")
        if found.until is not None and self._clock() >= found.until:
            raise Refused("the token has expired; ask for a new one")
        return found.name

    def _look_again(self) -> None:
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        with self._lock:
            self._looked = time.monotonic()
            stamp = _stamp_of(self._path)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            try:
                self._tokens = _read(self._path)
            except BadConfig as error:
                _log.error("tokens stay as they are: %s", error)
            else:
                _log.info("%d tokens were read again from %s", len(self._tokens), self._path)


def _read(path: Path) -> tuple[Token, ...]:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        lines = content.decode().splitlines()
    except OSError as error:
        raise BadConfig(f"{path}: the tokens file can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadConfig(f"{path}: byte {error.start} is not UTF-8; expected lines of NAME SHA256") from None
    if len(content) > _MAX_BYTES:
        raise BadConfig(f"{path}: a tokens file has at most {_MAX_BYTES} bytes; this is another kind of file")
    tokens: list[Token] = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if words:
            tokens.append(_token_of(words, f"{path}:{number}"))
            if any(tokens[-1].name == other.name or tokens[-1].digest == other.digest for other in tokens[:-1]):
                raise BadConfig(f"{path}:{number}: the name or hash stands there twice; give each token its own")
    if not tokens:
        raise BadConfig(f"{path}: no token is in it, so nobody could call; make one with `constraintd token NAME`")
    return tuple(tokens)


def _token_of(words: Sequence[str], place: str) -> Token:
    if len(words) not in (2, 3) or not _NAME.fullmatch(words[0]) or not _HASH.fullmatch(words[1]):
        # The line is not repeated: somebody may have put the token itself there.
        raise BadConfig(f"{place}: expected NAME SHA256 and perhaps until=TIME, as `constraintd token NAME` prints it")
    until = None
    if len(words) == 3:
        try:
            until = time_of(words[2].removeprefix("until="))
        except ValueError:
            raise BadConfig(f"{place}: expected until=2027-01-31T00:00:00Z as the third word") from None
    return Token(words[0], bytes.fromhex(words[1]), until)


def time_of(text: str) -> float:
    """Unix time of an ISO 8601 date or time; UTC unless it says otherwise. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns

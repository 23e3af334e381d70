"""Who may reach a server and call it: its listeners and its tokens, from its settings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from constraintd.serving.addresses import check_exposure, is_local
from constraintd.serving.certificates import ServerCertificates, TlsFiles
from constraintd.serving.listener import Listener
from constraintd.serving.socket_mode import mode_of
from constraintd.serving.tokens import TokensFile

_log = logging.getLogger(__name__)


class AccessSettings(Protocol):
    """The settings that daemon and runner both have for this."""

    @property
    def socket_mode(self) -> str: ...
    @property
    def tls_cert(self) -> str | None: ...
    @property
    def tls_key(self) -> str | None: ...
    @property
    def tls_client_ca(self) -> str | None: ...
    @property
    def tokens_file(self) -> str | None: ...
    @property
    def insecure(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Access:
    """`tokens` are None where calls need none."""

    listeners: tuple[Listener, ...]
    tokens: TokensFile | None


def access_of(addresses: Sequence[str], settings: AccessSettings) -> Access:
    """For a server at these addresses. Raises BadConfig for TLS, tokens or addresses that can't be used."""
    tls = TlsFiles.of(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    tokens = None if settings.tokens_file is None else TokensFile(Path(settings.tokens_file))
    check_exposure(addresses, tls=tls is not None, tokens=tokens is not None, insecure=settings.insecure)
    if tokens is None and settings.tls_client_ca is None and not all(map(is_local, addresses)):
        _log.warning(
            "whoever can reach %s may call: neither --tokens-file nor --tls-client-ca is set", ", ".join(addresses)
        )
    credentials = None if tls is None else ServerCertificates(tls).credentials()
    mode = mode_of(settings.socket_mode)
    return Access(tuple(Listener(address, mode=mode, credentials=credentials) for address in addresses), tokens)

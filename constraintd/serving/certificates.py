"""A server's certificates, taken from their files again when those change.

Whoever renews certificates replaces files (cert-manager, a mounted Secret: a symbolic link that moves). gRPC asks at
every new connection; four stat calls tell whether anything is new. What can't be used, because it is half written or
the key is another certificate's, is logged once and leaves the last good ones in force.
"""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc

from constraintd.serving.settings import BadConfig

_log = logging.getLogger(__name__)
Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. With `client_ca`, a client must show a certificate that this authority has signed."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def of(cls, cert: str | None, key: str | None, client_ca: str | None) -> TlsFiles | None:
        """From settings; None if none is set. Raises BadConfig for a part without the others."""
        if cert is None and key is None and client_ca is None:
            return None
        if cert is None or key is None:
            missing = "tls_cert" if cert is None else "tls_key"
            raise BadConfig(
                f"{missing} is not set; TLS needs --tls-cert and --tls-key, --tls-client-ca only adds to it"
            )
        return cls(Path(cert), Path(key), None if client_ca is None else Path(client_ca))


class ServerCertificates:
    """The certificates in force. Asked from gRPC's threads."""

    def __init__(self, files: TlsFiles) -> None:
        """Reads them. Raises BadConfig for what can't be used."""
        self._files = files
        self._lock = threading.Lock()
        self._stamp, self._present = _read(files)

    def credentials(self) -> grpc.ServerCredentials:
        """For a server's listeners."""
        return grpc.dynamic_ssl_server_credentials(
            self._present,
            self._renewed,  # type: ignore[arg-type]  # None is allowed, and says that nothing has changed
            require_client_authentication=self._files.client_ca is not None,
        )

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """New ones, if there are any; gRPC asks before each handshake."""
        with self._lock:
            stamp = _stamp_of(self._files)
            if stamp == self._stamp:
                return None
            try:
                self._stamp, self._present = _read(self._files)
            except BadConfig as error:
                self._stamp = stamp  # said once, and tried again when the files change again
                _log.error("certificates stay as they are: %s", error)
                return None
            _log.info("certificates were read again from %s", self._files.cert)
            return self._present


def _read(files: TlsFiles) -> tuple[Stamp, grpc.ServerCertificateConfiguration]:
    stamp = _stamp_of(files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.cert, files.key, password="")  # never asks at a terminal
        cert, key = files.cert.read_bytes(), files.key.read_bytes()
        client_ca = None
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            client_ca = files.client_ca.read_bytes()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        place = getattr(error, "filename", None) or f"{files.cert}, {files.key}" + (
            f", {files.client_ca}" if files.client_ca is not None else ""
        )
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise BadConfig(
            f"{place}: can't be used for TLS: {reason}; a certificate chain, its unencrypted key and an authority's "
            "certificates are expected, as PEM files"
        ) from None
    if _stamp_of(files) != stamp:
        return _read(files)  # they were replaced meanwhile, perhaps one of the two
    return stamp, grpc.ssl_server_certificate_configuration([(key, cert)], client_ca)


def _stamp_of(files: TlsFiles) -> Stamp:
    return tuple(_file_stamp(path) for path in (files.cert, files.key, files.client_ca) if path is not None)


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns

"""Certificates for tests: an authority that signs what a test asks for, valid or not."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from constraintd_client import Tls
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LOCAL = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])


class Authority:
    """Signs certificates for 127.0.0.1 and localhost, and writes them as PEM files into a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.cert = folder / f"{name}.crt"
        self.cert.write_bytes(self._signed(self._name, self._key.public_key(), days=1, authority=True))

    def issue(self, name: str, *, days: float = 1) -> tuple[Path, Path]:
        """A certificate and its key, as files `name`.crt and `name`.key; of negative `days`: one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        cert_file, key_file = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        cert_file.write_bytes(self._signed(subject, key.public_key(), days=days, authority=False))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert_file, key_file

    def client(self, name: str, *, days: float = 1) -> Tls:
        """What a client needs that trusts this authority, and has a certificate of it."""
        cert, key = self.issue(name, days=days)
        return Tls(ca=self.cert, cert=cert, key=key)

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, days: float, authority: bool) -> bytes:
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=30))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(_LOCAL, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

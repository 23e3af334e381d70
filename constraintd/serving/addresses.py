"""Which addresses stay on this machine, and which listener may stand open to others."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path

from constraintd.serving.settings import BadConfig


def is_unix(address: str) -> bool:
    """Whether it is a Unix socket's."""
    return address.startswith(("unix:", "unix-abstract:"))


def socket_path(address: str) -> Path | None:
    """The file of a Unix socket's address; None if it has none."""
    if not address.startswith("unix:"):
        return None
    rest = address.removeprefix("unix:")
    return Path(rest.removeprefix("//") if rest.startswith("//") else rest)


def is_local(address: str) -> bool:
    """Whether nobody off this machine can reach it: a Unix socket or a loopback address.

    A name other than `localhost` counts as one that others can reach, whatever it resolves to here.
    """
    if is_unix(address):
        return True
    bare = address
    for scheme in ("ipv4:", "ipv6:"):
        bare = bare.removeprefix(scheme)
    host = bare.rpartition(":")[0]
    if host == "localhost":
        return True
    bracketed = host.startswith("[") and host.endswith("]")
    if ":" in host and not bracketed:
        return False  # gRPC reads ::1:5005 as one address, without a port
    try:
        return ipaddress.ip_address(host[1:-1] if bracketed else host).is_loopback
    except ValueError:
        return False


def check_exposure(addresses: Sequence[str], *, tls: bool, tokens: bool, insecure: bool) -> None:
    """Raises BadConfig for a listener that others can reach and that has no TLS, unless it is said to be `insecure`."""
    if tls or insecure:
        return
    for address in addresses:
        if is_local(address):
            continue
        harm = (
            "tokens would travel there in the clear"
            if tokens
            else "whoever reaches it could read and change every session"
        )
        raise BadConfig(
            f"listen: {address} can be reached from other machines and has no TLS: {harm}; give --tls-cert and "
            "--tls-key (and --tls-client-ca or --tokens-file to say who may call), listen on 127.0.0.1 or a unix: "
            "socket, or say --insecure if something else protects it"
        )

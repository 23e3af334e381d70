"""Who may call: certificates and tokens."""

from __future__ import annotations

import subprocess
import sys

from clients.conformance.harness.case import case
from clients.conformance.harness.expect import directive
from clients.conformance.harness.talk import BYTE_TOKENS, UNCONSTRAINED, Talk
from tests.certificates import Authority
from tests.served_process import ServedProcess

TCP = ("--listen", "127.0.0.1:0", "--store", "memory", "--no-sandbox", "--drain-seconds", "1")


@case()
def a_token_is_sent_with_every_call_and_stream(talk: Talk) -> None:
    """A daemon with tokens serves who has one, unary and in a stream; without one, or with another: UNAUTHENTICATED."""
    folder = talk.places.folder()
    tokens = folder / "tokens"
    command = [sys.executable, "-m", "constraintd.cli", "token", "tester", "--append", str(tokens)]
    token = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    with ServedProcess(folder, *TCP, "--tokens-file", str(tokens)) as daemon:
        talk.begin(daemon.address, token=token)
        talk.stream()
        talk.open("s", UNCONSTRAINED)
        directive(talk.through("s", [97]), position=1)
        talk.ok("connect", client="nobody", targets=[daemon.address])
        talk.ok("connect", client="stranger", targets=[daemon.address], token="x" * 43)
        refused = {"reason": "UNAUTHENTICATED", "code": "UNAUTHENTICATED"}
        for client in ("nobody", "stranger"):
            talk.refused(refused, "get", client=client, session="s")
            talk.refused(refused, "register", client=client, **BYTE_TOKENS)


@case()
def a_token_goes_to_no_other_machine_in_the_clear(talk: Talk) -> None:
    """Without TLS a client with a token refuses a target that is neither a Unix socket nor this machine."""
    talk.refused({"kind": "argument"}, "connect", targets=["example.invalid:50051"], token="secret")


@case()
def mutual_tls_takes_both_certificates(talk: Talk) -> None:
    """A client with a certificate of the daemon's authority is served; one without, or with a stranger's, is not."""
    folder = talk.places.folder()
    authority, stranger = Authority(folder), Authority(folder, "stranger")
    cert, key = authority.issue("server")
    mine, other = authority.issue("client"), stranger.issue("other")
    flags = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(authority.cert))
    with ServedProcess(folder, *TCP, *flags) as daemon:
        tls = {"ca": str(authority.cert), "cert": str(mine[0]), "key": str(mine[1])}
        talk.begin(daemon.address, tls=tls)
        talk.stream()
        talk.open("s", UNCONSTRAINED)
        directive(talk.through("s", [97]), position=1)
        wrong = (
            {"ca": str(authority.cert)},
            {"ca": str(authority.cert), "cert": str(other[0]), "key": str(other[1])},
            {**tls, "ca": str(stranger.cert)},
        )
        for index, files in enumerate(wrong):
            talk.ok("connect", client=f"{index}", targets=[daemon.address], tls=files, timeout_ms=10_000)
            talk.refused({"code": "UNAVAILABLE", "reason": ""}, "get", client=f"{index}", session="s")

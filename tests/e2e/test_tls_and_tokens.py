"""Who may call a daemon: certificates and tokens that are wrong, expired or missing, and ones that are renewed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from constraintd_client import ConstraintClient, Tls, Unauthenticated, Unavailable
from constraintd_client.aio import AsyncConstraintClient
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.certificates import Authority
from tests.served_process import ServedProcess

TCP = ("--listen", "127.0.0.1:0", "--store", "memory", "--no-sandbox", "--drain-seconds", "1")


def tls_flags(authority: Authority, name: str = "server", **issue: float) -> tuple[str, ...]:
    cert, key = authority.issue(name, **issue)
    return ("--tls-cert", str(cert), "--tls-key", str(key))


def version(target: str, tls: Tls | None = None, token: str | Path | None = None) -> str:
    with ConstraintClient(target, tls=tls, token=token, timeout=10) as client:
        return client.server_info().version


def new_token(*arguments: str) -> str:
    command = [sys.executable, "-m", "constraintd.cli", "token", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_client_that_trusts_the_authority_is_served_and_one_that_does_not_is_not(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    with ServedProcess(tmp_path, *TCP, *tls_flags(authority)) as daemon:
        assert version(daemon.address, Tls(ca=authority.cert)) == "0.1.0"
        with pytest.raises(Unavailable):
            version(daemon.address, Tls(ca=stranger.cert))
        with pytest.raises(Unavailable):
            version(daemon.address)  # in the clear


async def test_the_asyncio_client_speaks_tls_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, _ = authority.issue("server")
    flags = (
        "--tls-cert",
        str(cert),
        "--tls-key",
        str(cert.with_suffix(".key")),
        "--tls-client-ca",
        str(authority.cert),
    )
    with ServedProcess(tmp_path, *TCP, *flags) as daemon:
        async with AsyncConstraintClient(daemon.address, tls=authority.client("ann")) as client:
            assert (await client.server_info()).version == "0.1.0"
        async with AsyncConstraintClient(daemon.address, tls=Tls(ca=authority.cert)) as client:
            with pytest.raises(Unavailable):
                await client.server_info()


def test_a_server_whose_certificate_has_expired_is_not_believed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with ServedProcess(tmp_path, *TCP, *tls_flags(authority, days=-1)) as daemon:
        with pytest.raises(Unavailable):
            version(daemon.address, Tls(ca=authority.cert))


def test_a_server_whose_certificate_is_another_host_s_is_not_believed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with ServedProcess(tmp_path, *TCP, *tls_flags(authority)) as daemon:
        with pytest.raises(Unavailable):
            version(daemon.address, Tls(ca=authority.cert, server_name="daemon.example"))
        assert version(daemon.address, Tls(ca=authority.cert, server_name="localhost")) == "0.1.0"


def test_mutual_tls_refuses_a_client_without_a_certificate_with_a_stranger_s_and_with_an_expired_one(
    tmp_path: Path,
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    flags = (*tls_flags(authority), "--tls-client-ca", str(authority.cert))
    with ServedProcess(tmp_path, *TCP, *flags) as daemon:
        assert version(daemon.address, authority.client("ann")) == "0.1.0"
        cert, key = stranger.issue("bob")
        for wrong in (
            Tls(ca=authority.cert),
            Tls(ca=authority.cert, cert=cert, key=key),
            authority.client("cid", days=-1),
        ):
            with pytest.raises(Unavailable):
                version(daemon.address, wrong)


def test_renewed_certificates_are_taken_up_without_a_restart_and_half_renewed_ones_are_not(tmp_path: Path) -> None:
    first, second = Authority(tmp_path), Authority(tmp_path, "second")
    flags = tls_flags(first)
    cert, key = Path(flags[1]), Path(flags[3])
    with ServedProcess(tmp_path, *TCP, *flags) as daemon:
        with ConstraintClient(daemon.address, tls=Tls(ca=first.cert)) as connected:
            assert connected.server_info().version == "0.1.0"
            new_cert, new_key = second.issue("renewed")
            cert.write_bytes(new_cert.read_bytes())  # and the key not yet
            assert version(daemon.address, Tls(ca=first.cert)) == "0.1.0"
            assert "certificates stay as they are" in daemon.log
            key.write_bytes(new_key.read_bytes())
            assert version(daemon.address, Tls(ca=second.cert)) == "0.1.0"
            with pytest.raises(Unavailable):
                version(daemon.address, Tls(ca=first.cert))
            assert connected.server_info().version == "0.1.0"  # what stands, stands


def test_a_client_takes_up_its_own_renewed_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    flags = (*tls_flags(authority), "--tls-client-ca", str(authority.cert))
    with ServedProcess(tmp_path, *TCP, *flags) as daemon:
        tls = authority.client("ann", days=-1)
        with ConstraintClient(daemon.address, tls=tls, timeout=10) as client:
            with pytest.raises(Unavailable):
                client.server_info()
            authority.client("ann")
            assert client.server_info().version == "0.1.0"


def test_what_cannot_be_used_for_tls_is_refused_at_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    other_cert, _ = authority.issue("other")
    (tmp_path / "empty").touch()
    for flags, words in (
        (("--tls-cert", str(cert)), "tls_key is not set"),
        (("--tls-client-ca", str(authority.cert)), "tls_cert is not set"),
        (("--tls-cert", str(other_cert), "--tls-key", str(key)), "KEY_VALUES_MISMATCH"),
        (("--tls-cert", f"{tmp_path}/none", "--tls-key", str(key)), "No such file"),
        (("--tls-cert", f"{tmp_path}/empty", "--tls-key", str(key)), f"{tmp_path}/empty"),
    ):
        with ServedProcess(tmp_path, *TCP, *flags) as daemon:
            assert daemon.process.returncode == 1
            assert words in daemon.log
            assert "Traceback" not in daemon.log


def test_a_token_lets_in_and_a_wrong_an_expired_and_a_missing_one_do_not(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    token = new_token("ann", "--append", str(tokens))
    old = new_token("old", "--append", str(tokens))
    soon = time.time() + 1
    name, digest = tokens.read_text().splitlines()[1].split()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(soon))
    tokens.write_text(tokens.read_text().splitlines()[0] + f"\n{name} {digest} until={stamp}\n")
    with ServedProcess(tmp_path, *TCP, "--tokens-file", str(tokens), "--log-calls", "--log-format", "json") as daemon:
        assert version(daemon.address, token=token) == "0.1.0"
        time.sleep(max(0.0, soon - time.time()))
        for wrong, words in ((None, "with a token alone"), ("cdt_guess", "not known"), (old, "expired")):
            with pytest.raises(Unauthenticated, match=words) as caught:
                version(daemon.address, token=wrong)
            assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
        daemon.end()
        assert '"bearer": "ann"' in daemon.log
        assert '"reason": "UNAUTHENTICATED"' in daemon.log
        assert token not in daemon.log


def test_a_decode_stream_and_a_large_request_are_refused_before_they_are_read(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    new_token("ann", "--append", str(tokens))
    with ServedProcess(tmp_path, *TCP, "--tokens-file", str(tokens)) as daemon:
        with grpc.insecure_channel(daemon.address) as channel:
            decode = channel.stream_stream("/constraintd.v1.ConstraintService/Decode")
            with pytest.raises(grpc.RpcError) as caught:
                next(decode(iter([b""]), timeout=10))
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            call = channel.unary_unary("/constraintd.v1.ConstraintService/OpenSession")
            with pytest.raises(grpc.RpcError) as caught:
                call(b"\xff" * (20 << 20), timeout=10)  # nor would it be a message
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_health_checks_need_no_token_and_reflection_does(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    new_token("ann", "--append", str(tokens))
    with ServedProcess(tmp_path, *TCP, "--tokens-file", str(tokens)) as daemon:
        with grpc.insecure_channel(daemon.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            assert health.Check(health_pb2.HealthCheckRequest(), timeout=10).status == 1
            requests = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
            with pytest.raises(grpc.RpcError) as caught:
                next(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(requests, timeout=10))
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_probes_that_speak_no_tls_have_a_listener_that_tells_the_health_and_nothing_else(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tokens = tmp_path / "tokens"
    new_token("ann", "--append", str(tokens))
    flags = (*tls_flags(authority), "--tls-client-ca", str(authority.cert), "--tokens-file", str(tokens))
    with ServedProcess(tmp_path, *TCP, *flags, "--health-listen", f"unix:{tmp_path}/health") as daemon:
        with grpc.insecure_channel(f"unix:{tmp_path}/health") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", "liveness"):
                assert health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status == 1
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary("/constraintd.v1.ConstraintService/GetServerInfo")(b"", timeout=10)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            with pytest.raises(grpc.RpcError) as caught:
                health.Check(health_pb2.HealthCheckRequest(service="other"), timeout=10)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        daemon.end()


def test_tokens_come_and_go_without_a_restart_on_both_sides(tmp_path: Path) -> None:
    tokens, mine = tmp_path / "tokens", tmp_path / "mine"
    mine.write_text(new_token("ann", "--append", str(tokens)) + "\n")
    with ServedProcess(tmp_path, *TCP, "--tokens-file", str(tokens)) as daemon:
        with ConstraintClient(daemon.address, token=mine) as client:
            assert client.server_info().version == "0.1.0"
            tokens.unlink()
            second = new_token("ann", "--append", str(tokens))
            time.sleep(1.1)  # the file is looked at once a second
            with pytest.raises(Unauthenticated):
                client.server_info()
            mine.write_text(second)
            assert client.server_info().version == "0.1.0"
            tokens.write_text("half a li")
            time.sleep(1.1)
            assert client.server_info().version == "0.1.0"
            assert "tokens stay as they are" in daemon.log


def test_a_token_does_not_travel_in_the_clear_to_another_machine_unless_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_plaintext_token"):
        ConstraintClient("daemon.example:50051", token="cdt_x")
    with pytest.raises(ValueError, match=r"10\.0\.0\.7:50051"):
        ConstraintClient(["127.0.0.1:50051", "10.0.0.7:50051"], token="cdt_x")
    ConstraintClient("daemon.example:50051", token="cdt_x", allow_plaintext_token=True).close()
    ConstraintClient("daemon.example:50051", token="cdt_x", tls=Tls(ca=Authority(tmp_path).cert)).close()
    ConstraintClient(["unix:/tmp/x", "localhost:1", "[::1]:2", "dns:///127.0.0.1:3"], token="cdt_x").close()


@pytest.mark.parametrize("bad", ["", "two words", "snow☃man", "line\nline"])
def test_what_cannot_be_a_token_is_refused_where_it_is_given(bad: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="visible ASCII"):
        ConstraintClient("unix:/tmp/x", token=bad)
    (tmp_path / "token").write_text(bad)
    with pytest.raises(ValueError, match=str(tmp_path)):
        ConstraintClient("unix:/tmp/x", token=tmp_path / "token")

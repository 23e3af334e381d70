"""Daemon and runner as everybody's tools see them: grpcurl, which asks by reflection, and grpc-health-probe."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from constraintd_client import ConstraintClient, Tls

from tests.certificates import Authority
from tests.daemon_process import daemon_process
from tests.go_tools import go_tool
from tests.replica_load import register
from tests.served_process import ServedProcess
from tests.tiny_decoder import write_genai_folder

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]

UNAUTHENTICATED: Final = 64 + 16
"""grpcurl's exit status for a call that was answered so: 64, and the code."""
UNREACHABLE, REFUSED, UNHEALTHY = 2, 3, 4
"""Exit statuses of grpc-health-probe."""


@dataclass(frozen=True, slots=True)
class Service:
    """One of the two, and a unary call of it with something that its answer says."""

    name: str
    call: str
    told: dict[str, Any]
    rpcs: tuple[str, ...]


DAEMON: Final = Service(
    "constraintd.v1.ConstraintService",
    "GetServerInfo",
    {"version": "0.1.0"},
    ("rpc Decode ( stream", "rpc OpenSession ("),
)
RUNNER: Final = Service(
    "constraintd.runner.v1.GenerationService",
    "GetModelInfo",
    {"version": "0.1.0", "model": "tiny"},
    ("rpc Generate (", "rpc ResumeGeneration ("),
)

Serve = Callable[..., AbstractContextManager[ServedProcess]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_genai_folder(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def standing_daemon() -> Iterator[str]:
    """The one that runners work with."""
    with daemon_process("--no-sandbox") as address:
        yield address


@pytest.fixture(params=[DAEMON, RUNNER], ids=["daemon", "runner"])
def service(request: pytest.FixtureRequest) -> Service:
    return request.param


@pytest.fixture
def serve(service: Service, model: Path, standing_daemon: str, tmp_path: Path) -> Serve:
    """Starts the service with these flags."""

    def start(*flags: str) -> ServedProcess:
        if service is DAEMON:
            return ServedProcess(tmp_path, *flags, "--store", "memory", "--no-sandbox")
        own = ("--model", str(model), "--daemon", standing_daemon, "--threads", "1")
        return ServedProcess(tmp_path, *flags, *own, program="constraintd_runner.cli")

    return start


def grpcurl(
    address: str, *arguments: str, tls: Tls | None = None, token: str | None = None, flags: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs it; `arguments` follow the address."""
    command = [str(go_tool("grpcurl")), "-max-time", "20", "-connect-timeout", "5", *flags]
    if tls is None:
        command.append("-plaintext")
    else:
        command += ["-cacert", str(tls.ca)]
        command += ["-cert", str(tls.cert), "-key", str(tls.key)] if tls.cert else []
    if token is not None:
        command += ["-H", bearer(token)]
    if address.startswith("unix:"):
        command.append("-unix")
    command += [address.removeprefix("unix:"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def probe(
    address: str, service: str = "", *, tls: Tls | None = None, connect: str = "10s"
) -> subprocess.CompletedProcess[str]:
    """Runs grpc-health-probe, which tries to connect for all of `connect`, whatever refuses it."""
    command = [str(go_tool("grpc-health-probe")), "-addr", address, "-service", service]
    command += ["-connect-timeout", connect, "-rpc-timeout", "10s"]
    if tls is not None:
        command += ["-tls", "-tls-ca-cert", str(tls.ca)]
        command += ["-tls-client-cert", str(tls.cert), "-tls-client-key", str(tls.key)] if tls.cert else []
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def bearer(token: str) -> str:
    return f"authorization: Bearer {token}"


def asked(service: Service, address: str, tls: Tls | None = None, token: str | None = None) -> dict[str, Any]:
    """The answer to the service's unary call. Raises AssertionError if there is none."""
    done = grpcurl(address, f"{service.name}/{service.call}", tls=tls, token=token)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def new_token(path: Path, name: str, *flags: str) -> str:
    command = [sys.executable, "-m", "constraintd.cli", "token", name, "--append", str(path), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def tls_flags(authority: Authority, *, days: float = 1) -> tuple[str, ...]:
    cert, key = authority.issue("server", days=days)
    return ("--tls-cert", str(cert), "--tls-key", str(key))


@pytest.fixture(params=["unix", "tcp"])
def way_in(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    return ("--listen", f"unix:{tmp_path}/service.sock" if request.param == "unix" else "127.0.0.1:0")


# --- without access control ---


def test_what_is_served_is_listed_described_and_called_without_a_proto_file(
    service: Service, serve: Serve, way_in: tuple[str, ...]
) -> None:
    with serve(*way_in) as served:
        listed = grpcurl(served.address, "list")
        assert listed.returncode == 0, listed.stderr
        assert {service.name, "grpc.health.v1.Health"} < set(listed.stdout.split())
        described = grpcurl(served.address, "describe", service.name)
        assert described.returncode == 0, described.stderr
        assert all(rpc in described.stdout for rpc in service.rpcs), described.stdout
        assert service.told.items() <= asked(service, served.address).items()
        served.end()


def test_readiness_and_liveness_are_told_and_other_names_are_not(
    service: Service, serve: Serve, way_in: tuple[str, ...]
) -> None:
    with serve(*way_in) as served:
        for name in ("", service.name, "liveness"):
            done = probe(served.address, name)
            assert done.returncode == 0, (name, done.stderr)
            assert "status: SERVING" in done.stderr + done.stdout
        assert probe(served.address, "other").returncode == REFUSED
        served.end()
        assert probe(served.address, connect="1s").returncode == UNREACHABLE


def test_a_refusal_comes_with_its_reason(standing_daemon: str) -> None:
    request = {"vocabulary_id": "0" * 64, "grammar": {"regex": b64encode(b"[0-9]+").decode()}}
    done = grpcurl(standing_daemon, f"{DAEMON.name}/CompileGrammar", flags=("-d", json.dumps(request)))
    assert done.returncode == 64 + 5, done.stderr
    assert "Code: NotFound" in done.stderr
    assert '"reason": "UNKNOWN_VOCABULARY"' in done.stderr
    assert '"domain": "constraintd"' in done.stderr


def test_text_is_generated_from_the_command_line(model: Path, standing_daemon: str, tmp_path: Path) -> None:
    request = {
        "text": b64encode(b"It was ").decode(),
        "constraint": {"grammar": {"regex": b64encode(b"[0-9]{4}-[0-9]{2}").decode()}},
        "sampler": {"stages": [{"greedy": {}}]},
    }
    flags = ("--listen", f"unix:{tmp_path}/runner.sock", "--model", str(model), "--daemon", standing_daemon)
    with ServedProcess(tmp_path, *flags, program="constraintd_runner.cli") as runner:
        done = grpcurl(runner.address, f"{RUNNER.name}/Generate", flags=("-d", json.dumps(request)))
    assert done.returncode == 0, done.stderr
    events = json.loads("[" + done.stdout.strip().replace("}\n{", "},\n{") + "]")
    assert "started" in events[0]
    text = "".join(event["delta"].get("text", "") for event in events[1:-1])
    assert len(text) == 7
    assert text[4] == "-"
    assert text.replace("-", "").isdecimal()
    assert events[-1]["finished"]["finish"]["reason"] == "FINISH_REASON_GRAMMAR_EXHAUSTED"


# --- health where something is wrong ---


def test_a_draining_daemon_is_alive_and_not_ready_to_a_probe_that_comes_only_now(tmp_path: Path) -> None:
    flags = ("--listen", f"unix:{tmp_path}/daemon.sock", "--health-listen", f"unix:{tmp_path}/health.sock")
    flags += ("--store", f"sqlite:{tmp_path}/sessions", "--durability", "strict", "--no-sandbox")
    slow = ("--failpoints", "append.before=delay:3", "--drain-seconds", "10")
    with ServedProcess(tmp_path, *flags, *slow) as daemon, ConstraintClient(daemon.addresses[0]) as client:
        session = client.open_session(register(client), None)
        running = threading.Thread(target=client.step, args=(session, [65], [1.0]))
        running.start()
        time.sleep(0.3)
        daemon.signal()
        time.sleep(0.3)
        health = f"unix:{tmp_path}/health.sock"
        assert probe(health).returncode == UNHEALTHY
        assert probe(health, DAEMON.name).returncode == UNHEALTHY
        assert probe(health, "liveness").returncode == 0
        running.join(timeout=20)
        assert session.position == 1
        daemon.gone(within=10)


def test_a_runner_whose_daemon_is_away_is_alive_and_not_ready(model: Path, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/daemon.sock"
    flags = ("--listen", f"unix:{tmp_path}/runner.sock", "--model", str(model), "--daemon", address)
    with ServedProcess(tmp_path, "--listen", address, "--store", "memory", "--no-sandbox") as daemon:
        with ServedProcess(tmp_path, *flags, "--answer-timeout", "1", program="constraintd_runner.cli") as runner:
            assert probe(runner.address).returncode == 0
            daemon.end()
            until = time.monotonic() + 20
            while (ready := probe(runner.address).returncode) != UNHEALTHY:
                assert ready == 0
                assert time.monotonic() < until, "it says that it is ready"
                time.sleep(0.2)
            assert probe(runner.address, "liveness").returncode == 0
            runner.end()


# --- who gets in ---


def test_tls_lets_in_whoever_trusts_its_authority_and_nobody_else(
    service: Service, serve: Serve, tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    with serve("--listen", "127.0.0.1:0", *tls_flags(authority)) as served:
        trusting = Tls(ca=authority.cert)
        assert service.told.items() <= asked(service, served.address, trusting).items()
        assert probe(served.address, "liveness", tls=trusting).returncode == 0
        for wrong, words in ((Tls(ca=stranger.cert), "unknown authority"), (None, "EOF")):
            done = grpcurl(served.address, f"{service.name}/{service.call}", tls=wrong)
            assert done.returncode == 1
            assert "Failed to dial" in done.stderr
            assert words in done.stderr
            assert probe(served.address, "liveness", tls=wrong, connect="1s").returncode == UNREACHABLE
        served.end()


def test_a_server_s_certificate_that_has_expired_is_seen(service: Service, serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with serve("--listen", "127.0.0.1:0", *tls_flags(authority, days=-1)) as served:
        done = grpcurl(served.address, "list", tls=Tls(ca=authority.cert))
        assert done.returncode == 1
        assert "expired" in done.stderr
        assert probe(served.address, "liveness", tls=Tls(ca=authority.cert), connect="1s").returncode == UNREACHABLE
        served.end()


def test_mutual_tls_wants_a_certificate_of_its_own_authority_that_is_valid(
    service: Service, serve: Serve, tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    flags = (*tls_flags(authority), "--tls-client-ca", str(authority.cert))
    cert, key = stranger.issue("bob")
    with serve("--listen", "127.0.0.1:0", *flags) as served:
        ann = authority.client("ann")
        assert service.told.items() <= asked(service, served.address, ann).items()
        assert probe(served.address, tls=ann).returncode == 0
        for wrong in (
            Tls(ca=authority.cert),
            Tls(ca=authority.cert, cert=cert, key=key),
            authority.client("cid", days=-1),
        ):
            done = grpcurl(served.address, f"{service.name}/{service.call}", tls=wrong)
            assert done.returncode == 1
            assert "Failed to dial" in done.stderr
            assert probe(served.address, tls=wrong, connect="1s").returncode == UNREACHABLE
        served.end()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plaintext", "tls"])
def test_a_token_lets_in_and_a_wrong_an_expired_and_a_missing_one_do_not(
    service: Service, serve: Serve, tmp_path: Path, encrypted: bool
) -> None:
    authority, tokens = Authority(tmp_path), tmp_path / "tokens"
    good, old = new_token(tokens, "ann"), new_token(tokens, "old")
    ann, expired = tokens.read_text().splitlines()
    tokens.write_text(f"{ann}\n{' '.join(expired.split()[:2])} until=2020-01-01T00:00:00Z\n")
    tls = Tls(ca=authority.cert) if encrypted else None
    flags = tls_flags(authority) if encrypted else ()
    call = f"{service.name}/{service.call}"
    with serve("--listen", "127.0.0.1:0", "--tokens-file", str(tokens), *flags) as served:
        assert service.told.items() <= asked(service, served.address, tls, good).items()
        for wrong, words in ((None, "with a token alone"), ("cdt_guess", "not known"), (old, "expired")):
            listed = grpcurl(served.address, "list", tls=tls, token=wrong)
            assert listed.returncode != 0
            assert "Unauthenticated" in listed.stderr, listed.stderr
            # The call itself, by whoever knows the service from elsewhere.
            header = () if wrong is None else ("-rpc-header", bearer(wrong))
            called = grpcurl(served.address, call, tls=tls, flags=("-reflect-header", bearer(good), *header))
            assert called.returncode == UNAUTHENTICATED, called.stderr
            assert words in called.stderr
            assert '"reason": "UNAUTHENTICATED"' in called.stderr
        assert probe(served.address, tls=tls).returncode == 0  # kubelets have no token
        assert probe(served.address, "liveness", tls=tls).returncode == 0
        served.end()
        assert good not in served.log

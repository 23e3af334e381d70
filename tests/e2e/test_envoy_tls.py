"""The real Envoy with the config of the overlay `replicas`: TLS from clients, a renewed certificate, /ready."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from constraintd.v1 import constraint_service_pb2, constraint_service_pb2_grpc
from tests.certificates import Authority
from tests.envoy_process import deployed, envoy_program, free_ports
from tests.unit.deploy.secret_volume import put_secret

pytestmark = [pytest.mark.services, pytest.mark.timeout(90)]

TLS_FILE = Path(__file__).parents[2] / "deploy" / "kustomize" / "overlays" / "replicas" / "envoy" / "tls.yaml"


class Front:
    """A running Envoy with the overlay's certificate file."""

    def __init__(self, folder: Path, daemon: str) -> None:
        self.authority = Authority(folder)
        self._certificates = folder / "certificates"
        self.serial = self.certify("envoy")
        self.address, self._admin, self._probe = (f"127.0.0.1:{port}" for port in free_ports(3))
        (folder / "tls.yaml").write_text(TLS_FILE.read_text().replace("/etc/envoy-tls", str(self._certificates)))
        config = deployed().rendered(
            self.address, self._admin, [daemon], tls=str(folder / "tls.yaml"), probe=self._probe
        )
        (folder / "envoy.yaml").write_text(config)
        self._log = folder / "envoy.log"
        command = [str(envoy_program()), "--config-path", str(folder / "envoy.yaml"), "--concurrency", "1"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--disable-hot-restart", "--log-level", "warning"], stdout=log, stderr=log
            )

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def certify(self, name: str) -> int:
        """Puts a new certificate where Envoy finds it; gives its serial number."""
        cert, key = self.authority.issue(name)
        put_secret(self._certificates, {"tls.crt": cert.read_bytes(), "tls.key": key.read_bytes()})
        return x509.load_pem_x509_certificate(cert.read_bytes()).serial_number

    def ready(self) -> int:
        """What /ready answers now; 0 where nobody listens."""
        try:
            with urllib.request.urlopen(f"http://{self._probe}/ready", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait_ready(self, expected: int) -> None:
        until = time.monotonic() + 20
        while self.ready() != expected:
            assert time.monotonic() < until, f"/ready answers {self.ready()}: {self._log.read_text()[-2000:]}"
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            time.sleep(0.05)

    def call(self, credentials: grpc.ChannelCredentials | None) -> str:
        """The daemon's version, asked for through Envoy. Raises grpc.RpcError."""
        options = (("grpc.use_local_subchannel_pool", 1),)
        channel = (
            grpc.insecure_channel(self.address, options)
            if credentials is None
            else grpc.secure_channel(self.address, credentials, options)
        )
        with channel:
            stub = constraint_service_pb2_grpc.ConstraintServiceStub(channel)
            version: str = stub.GetServerInfo(constraint_service_pb2.GetServerInfoRequest(), timeout=5).version
            return version

    def shown_serial(self) -> int:
        """Serial number of the certificate that a new connection is shown."""
        context = ssl.create_default_context(cafile=self.authority.cert)
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            with context.wrap_socket(raw, server_hostname=host) as secure:
                shown = secure.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number


@pytest.fixture
def plain_daemon(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "constraintd.cli", "serve", "--listen", "127.0.0.1:0", "--store", "memory"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def front(plain_daemon: subprocess.Popen[str], tmp_path: Path) -> Iterator[Front]:
    assert plain_daemon.stdout is not None
    daemon = plain_daemon.stdout.readline().removeprefix("listening on ").strip()
    made = Front(tmp_path, daemon)
    try:
        made.wait_ready(200)
        yield made
    finally:
        made.stop()


def test_envoy_takes_tls_alone_and_a_renewed_certificate_without_a_restart(front: Front, tmp_path: Path) -> None:
    trusted = grpc.ssl_channel_credentials(front.authority.cert.read_bytes())
    assert front.call(trusted) == "0.1.0"
    assert front.shown_serial() == front.serial

    with pytest.raises(grpc.RpcError) as refused:
        front.call(None)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.RpcError) as mistrusted:
        front.call(grpc.ssl_channel_credentials(Authority(tmp_path, "other").cert.read_bytes()))
    assert mistrusted.value.code() == grpc.StatusCode.UNAVAILABLE

    renewed = front.certify("renewed")
    until = time.monotonic() + 10
    while front.shown_serial() != renewed:
        assert time.monotonic() < until, "the renewed certificate was not taken"
        time.sleep(0.05)
    assert front.call(trusted) == "0.1.0"


def test_envoy_is_ready_while_some_daemon_is(front: Front, plain_daemon: subprocess.Popen[str]) -> None:
    assert front.ready() == 200
    plain_daemon.kill()
    front.wait_ready(503)


@pytest.mark.parametrize("path", ["tls.yaml", "/tls.yaml }, x: { y: 1", ""])
def test_a_certificate_file_that_is_no_plain_absolute_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        deployed().rendered("127.0.0.1:1", "127.0.0.1:2", ["127.0.0.1:3"], tls=path)

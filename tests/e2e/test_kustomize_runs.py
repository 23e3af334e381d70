"""What the overlays run, run here: their own config files, probes and tokens, with the pods' paths and ports moved."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from constraintd_client import GenerationClient, regex, sampler_config
from constraintd_client.errors import ConstraintdError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from constraintd.runner.v1 import generation_service_pb2
from constraintd.v1 import constraint_service_pb2
from tests.certificates import Authority
from tests.envoy_process import deployed, envoy_program, free_ports
from tests.redis_process import RedisProcess
from tests.tiny_decoder import write_genai_folder
from tests.unit.deploy.manifests import KUSTOMIZE, Manifest, Workload, render, workloads
from tests.unit.deploy.secret_volume import put_secret

pytestmark = [pytest.mark.services, pytest.mark.timeout(150)]


class Place:
    """A folder that holds what the pods' volumes hold, and what became of their addresses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("run/constraintd", "var/lib/constraintd", "etc/constraintd-tokens", "etc/constraintd-ca"):
            (folder / name).mkdir(parents=True)
        write_genai_folder(folder / "models" / "smollm2", seed=9)
        self.client_token = self._token("client", "clients")
        (self.folder / "etc/constraintd-tokens/runner-token").write_text(self._token("runner", "runners"))

    def config(self, overlay: str, program: str, ports: Mapping[int, int], name: str = "") -> Path:
        """The overlay's file, for this machine."""
        text = (KUSTOMIZE / "overlays" / overlay / "config" / f"{program}.toml").read_text()
        text = re.sub(r'(?<=[":])/(?=(run|var|etc|models)/)', f"{self.folder}/", text)
        text = re.sub(r"0\.0\.0\.0:(\d+)", lambda found: f"127.0.0.1:{ports[int(found[1])]}", text)
        path = self.folder / f"{name or program}.toml"
        path.write_text(text)
        return path

    def _token(self, name: str, file: str) -> str:
        path = self.folder / "etc/constraintd-tokens" / file
        command = [sys.executable, "-m", "constraintd.cli", "token", name, "--append", str(path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def place() -> Iterator[Place]:
    """With a short name, since Unix sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="k-", dir="/tmp"))
    yield Place(folder)
    shutil.rmtree(folder)


@contextmanager
def started(
    module: str, *arguments: str, log: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A program that has said that it listens."""
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=os.environ | (env or {}),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), log.read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def probes(workload: Workload, container: str, ports: Mapping[int, int]) -> dict[str, str]:
    """What the kubelet would hear at each gRPC probe of a container."""
    found: Manifest = workload.container(container)
    heard = {}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = found[probe]["grpc"]
        with grpc.insecure_channel(f"127.0.0.1:{ports[asked['port']]}") as channel:
            request = health_pb2.HealthCheckRequest(service=asked.get("service", ""))
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=found[probe]["timeoutSeconds"])
        heard[probe] = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return heard


EVERYTHING_ELSE = [
    f"/{service.full_name}/{method.name}"
    for file in (constraint_service_pb2, generation_service_pb2, reflection_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def answers_health_alone(port: int, token: str) -> None:
    """Says so of a port, which even who has a token can't use for anything else."""
    metadata = [("authorization", f"Bearer {token.strip()}")]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for method in EVERYTHING_ELSE:
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(method)(b"", timeout=10, metadata=metadata)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED, method
        with pytest.raises(grpc.RpcError) as refused:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="other"), timeout=10)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def listening_ports(process: subprocess.Popen[str]) -> set[int]:
    """The TCP ports on which a program listens, as Linux has them."""
    sockets = set()
    for file in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            sockets.add(os.readlink(file))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                found.add(int(local.rpartition(":")[2], 16))
    return found


WELL = {"startupProbe": "SERVING", "readinessProbe": "SERVING", "livenessProbe": "SERVING"}


def generated(target: str, token: str) -> str:
    with GenerationClient(target, token=token.strip()) as client:
        return client.generate("n: ", constraint=regex("[0-9]{4}"), sampler=sampler_config(seed=2)).wait().text


def test_the_sidecar_s_pod_serves_who_has_a_token_and_ends_within_its_grace(place: Place) -> None:
    workload = workloads(render("sidecar"))["runner"]
    ports = dict(zip((50061, 9464, 50052, 50062, 9465), free_ports(5), strict=True))
    daemon_file, runner_file = (place.config("sidecar", program, ports) for program in ("daemon", "runner"))
    with (
        started("constraintd.cli", "serve", "--config", str(daemon_file), log=place.folder / "d.log") as daemon,
        started("constraintd_runner.cli", "serve", "--config", str(runner_file), log=place.folder / "r.log") as runner,
    ):
        assert probes(workload, "daemon", ports) == WELL
        assert probes(workload, "runner", ports) == WELL
        runner_token = (place.folder / "etc/constraintd-tokens/runner-token").read_text()
        answers_health_alone(ports[50061], runner_token)
        answers_health_alone(ports[50062], place.client_token)
        assert listening_ports(daemon) == {ports[50061], ports[9464]}  # calls come by the socket
        assert listening_ports(runner) == {ports[50052], ports[50062], ports[9465]}
        target = f"127.0.0.1:{ports[50052]}"
        assert re.fullmatch("[0-9]{4}", generated(target, place.client_token))
        with pytest.raises(ConstraintdError) as refused:
            generated(target, runner_token)
        assert refused.value.reason == "UNAUTHENTICATED"
        for port, metric in ((9464, "constraintd_step_seconds_count"), (9465, "constraintd_runner_tokens_total")):
            assert metric in page(f"http://127.0.0.1:{ports[port]}/metrics")

        begun = time.monotonic()
        for process in (runner, daemon):  # in a pod's order: sidecars last
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        assert time.monotonic() - begun < workload.pod["terminationGracePeriodSeconds"]
    assert (place.folder / "var/lib/constraintd/sessions.db").stat().st_mode & 0o077 == 0


def test_the_replicas_serve_a_runner_over_tls_and_tokens_and_outlive_one_of_them(place: Place) -> None:
    manifests = workloads(render("replicas"))
    redis_folder = place.folder / "redis"
    redis_folder.mkdir()
    redis = RedisProcess(redis_folder, synced=False)
    authority = Authority(place.folder)
    cert, key = authority.issue("envoy")
    certificates = place.folder / "certificates"
    put_secret(certificates, {"tls.crt": cert.read_bytes(), "tls.key": key.read_bytes()})
    put_secret(place.folder / "etc/constraintd-ca", {"ca.crt": authority.cert.read_bytes()})
    envoy_port, probe_port, admin_port = free_ports(3)
    daemons: list[dict[int, int]] = [dict(zip((50051, 50061, 9464), free_ports(3), strict=True)) for _ in range(3)]
    runner_token = (place.folder / "etc/constraintd-tokens/runner-token").read_text()
    with ExitStack() as stack:
        stack.callback(redis.kill)
        redis.start()
        running = [
            stack.enter_context(
                started(
                    "constraintd.cli",
                    "serve",
                    "--config",
                    str(place.config("replicas", "daemon", ports, f"daemon-{number}")),
                    log=place.folder / f"d{number}.log",
                    env={"CONSTRAINTD_STORE": redis.url},
                )
            )
            for number, ports in enumerate(daemons)
        ]
        for ports in daemons:
            assert probes(manifests["daemon"], "daemon", ports) == WELL
            answers_health_alone(ports[50061], runner_token)
        stack.enter_context(
            envoy(place, [ports[50051] for ports in daemons], envoy_port, admin_port, probe_port, certificates)
        )
        runner_ports = dict(zip((50052, 50062, 9465), free_ports(3), strict=True))
        runner_file = place.config("replicas", "runner", runner_ports)
        # The name in the file is the cluster's to resolve; the certificate is for this address as well.
        stack.enter_context(
            started(
                "constraintd_runner.cli",
                "serve",
                "--config",
                str(runner_file),
                "--daemon",
                f"127.0.0.1:{envoy_port}",
                log=place.folder / "r.log",
            )
        )
        assert probes(manifests["runner"], "runner", runner_ports) == WELL
        answers_health_alone(runner_ports[50062], place.client_token)
        target = f"127.0.0.1:{runner_ports[50052]}"
        first = generated(target, place.client_token)
        assert re.fullmatch("[0-9]{4}", first)
        for process in running[:2]:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        assert generated(target, place.client_token) == first


@contextmanager
def envoy(
    place: Place, daemons: Sequence[int], listen: int, admin: int, probe: int, certificates: Path
) -> Iterator[None]:
    """Envoy as the overlay has it, ready by its own probe."""
    tls = (KUSTOMIZE / "overlays/replicas/envoy/tls.yaml").read_text()
    (place.folder / "tls.yaml").write_text(tls.replace("/etc/envoy-tls", str(certificates)))
    config = deployed().rendered(
        f"127.0.0.1:{listen}",
        f"127.0.0.1:{admin}",
        [f"127.0.0.1:{port}" for port in daemons],
        tls=str(place.folder / "tls.yaml"),
        probe=f"127.0.0.1:{probe}",
    )
    (place.folder / "envoy.yaml").write_text(config)
    command = [str(envoy_program()), "--config-path", str(place.folder / "envoy.yaml"), "--concurrency", "1"]
    with (place.folder / "envoy.log").open("wb") as log:
        process = subprocess.Popen([*command, "--disable-hot-restart", "--log-level", "warning"], stderr=log)
    try:
        until = time.monotonic() + 20
        while page(f"http://127.0.0.1:{probe}/ready") is None:
            assert time.monotonic() < until, (place.folder / "envoy.log").read_text()[-2000:]
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def page(address: str) -> str | None:
    """What is served there; None where nothing is, or not yet."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return None

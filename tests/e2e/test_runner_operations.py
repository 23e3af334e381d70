"""A runner under SIGTERM, behind TLS and tokens, and at a daemon that drains."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from constraintd_client import (
    DaemonUnavailable,
    Generation,
    GenerationClient,
    Tls,
    Unauthenticated,
    Unavailable,
    sampler_config,
)
from constraintd_client.aio import AsyncGenerationClient
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.certificates import Authority
from tests.served_process import ServedProcess
from tests.tiny_decoder import write_genai_folder

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
LONG = sampler_config(max_tokens=800, min_tokens=800, seed=5)
"""Takes some seconds."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_genai_folder(tmp_path_factory.mktemp("model"), seed=3)


def daemon_at(folder: Path, *arguments: str) -> ServedProcess:
    flags = ("--listen", f"unix:{folder}/daemon", "--store", f"sqlite:{folder}/sessions", "--no-sandbox")
    return ServedProcess(folder, *flags, "--drain-seconds", "2", *arguments)


def runner_at(folder: Path, model: Path, *arguments: str, name: str = "runner", daemon: str = "") -> ServedProcess:
    flags = ("--model", str(model), "--daemon", daemon or f"unix:{folder}/daemon", "--threads", "1", "--slots", "3")
    listen = () if "--listen" in arguments else ("--listen", f"unix:{folder}/{name}")
    return ServedProcess(folder, *flags, *listen, *arguments, program="constraintd_runner.cli")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ServedProcess]:
    with daemon_at(tmp_path) as served:
        yield served


def long_generation(client: GenerationClient, *, resumable: bool = False) -> Generation:
    """One that has begun."""
    generation = client.generate("Once", constraint=None, sampler=LONG, resumable=resumable)
    next(iter(generation))
    return generation


def test_a_running_generation_is_finished_a_new_one_refused_and_the_runner_alive(
    daemon: ServedProcess, model: Path, tmp_path: Path
) -> None:
    with runner_at(tmp_path, model, "--drain-seconds", "30") as runner, GenerationClient(runner.address) as client:
        channel = grpc.insecure_channel(runner.address)
        health = health_pb2_grpc.HealthStub(channel)

        def told(service: str) -> int:
            return health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5).status

        names = ("", "constraintd.runner.v1.GenerationService", "liveness")
        assert [told(name) for name in names] == [SERVING, SERVING, SERVING]
        generation = long_generation(client)
        runner.signal()
        time.sleep(0.1)
        assert [told(name) for name in names] == [NOT_SERVING, NOT_SERVING, SERVING]
        with pytest.raises(Unavailable, match="try again elsewhere"):
            client.generate("Twice", constraint=None, sampler=LONG).wait()
        assert len(generation.wait().token_ids) == 800
        runner.gone(within=5)  # and not after the 30 s
        channel.close()


def test_what_outlasts_the_drain_goes_on_at_another_runner_token_for_token_where_it_is_resumable(
    daemon: ServedProcess, model: Path, tmp_path: Path
) -> None:
    short = ("--drain-seconds", "0.3")
    with runner_at(tmp_path, model, *short) as first, runner_at(tmp_path, model, *short, name="second") as second:
        with GenerationClient(second.address) as client:
            expected = client.generate("Once", constraint=None, sampler=LONG).wait()
        with GenerationClient([first.address, second.address]) as client, GenerationClient(first.address) as lone:
            resumable = long_generation(client, resumable=True)
            lost = long_generation(lone)
            first.signal()
            with pytest.raises(Unavailable):
                lost.wait()
            resumable.wait()
            first.gone(within=5)
        assert len(lost.token_ids) < 800
        assert resumable.token_ids == expected.token_ids
        assert resumable.text == expected.text


def test_a_second_signal_ends_a_runner_at_once(daemon: ServedProcess, model: Path, tmp_path: Path) -> None:
    with runner_at(tmp_path, model, "--drain-seconds", "60") as runner, GenerationClient(runner.address) as client:
        generation = long_generation(client)
        runner.signal()
        time.sleep(0.1)
        runner.signal(signal.SIGINT)
        began = time.monotonic()
        with pytest.raises(Unavailable):
            generation.wait()
        runner.gone(within=3)
        assert time.monotonic() - began < 3


def test_a_runner_goes_on_at_once_where_its_daemon_drains(model: Path, tmp_path: Path) -> None:
    first = daemon_at(tmp_path)
    with first, runner_at(tmp_path, model) as runner, GenerationClient(runner.address) as client:
        expected = client.generate("Once", constraint=None, sampler=LONG).wait()
        generation = long_generation(client)
        others = [client.generate("Once", constraint=None, sampler=LONG) for _ in range(2)]
        time.sleep(0.1)
        first.end()
        with daemon_at(tmp_path) as second:
            assert generation.wait().token_ids == expected.token_ids
            for other in others:
                assert other.wait().token_ids == expected.token_ids
            runner.end()
            second.end()
        assert "the daemon is about to stop" in runner.log


def new_token(file: Path, name: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "constraintd.cli", "token", name, "--append", str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


async def test_a_runner_between_two_walls_of_tls_and_tokens(model: Path, tmp_path: Path) -> None:
    inside, outside = Authority(tmp_path, "inside"), Authority(tmp_path, "outside")
    daemon_cert, daemon_key = inside.issue("daemon")
    own_cert, own_key = inside.issue("runner-inside")
    cert, key = outside.issue("runner-outside")
    runners_token = tmp_path / "runners.token"
    runners_token.write_text(new_token(tmp_path / "daemon.tokens", "runner"))
    token = new_token(tmp_path / "runner.tokens", "ann")
    wall = ("--listen", "127.0.0.1:0")
    with ServedProcess(
        tmp_path,
        *("--store", "memory", "--no-sandbox", *wall, "--tokens-file", str(tmp_path / "daemon.tokens")),
        *("--tls-cert", str(daemon_cert), "--tls-key", str(daemon_key), "--tls-client-ca", str(inside.cert)),
    ) as daemon:
        with runner_at(
            tmp_path,
            model,
            *("--daemon-ca", str(inside.cert), "--daemon-cert", str(own_cert), "--daemon-key", str(own_key)),
            *("--daemon-token-file", str(runners_token), *wall, "--health-listen", f"unix:{tmp_path}/health"),
            *("--tls-cert", str(cert), "--tls-key", str(key), "--tokens-file", str(tmp_path / "runner.tokens")),
            daemon=daemon.address,
        ) as runner:
            trusted = Tls(ca=outside.cert)
            few = sampler_config(max_tokens=5, min_tokens=5)
            with GenerationClient(runner.address, tls=trusted, token=token) as client:
                assert len(client.generate("Once", constraint=None, sampler=few).wait().token_ids) == 5
                assert client.model_info().slots == 3
            async with AsyncGenerationClient(runner.address, tls=trusted, token=token) as client:
                assert (await client.model_info()).slots == 3
                assert len((await client.generate("Once", constraint=None, sampler=few).wait()).token_ids) == 5
            for tls, wrong, kind in (
                (trusted, None, Unauthenticated),
                (trusted, "cdt_guess", Unauthenticated),
                (Tls(ca=inside.cert), token, Unavailable),
            ):
                with GenerationClient(runner.address, tls=tls, token=wrong, timeout=10) as client:
                    with pytest.raises(kind):
                        client.model_info()
                    with pytest.raises(kind):
                        client.generate("Once", constraint=None, sampler=few, timeout=10).wait()
            channel = grpc.secure_channel(runner.address, grpc.ssl_channel_credentials(outside.cert.read_bytes()))
            with channel:
                check = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
                assert check.status == SERVING
            with grpc.insecure_channel(f"unix:{tmp_path}/health") as channel:
                check = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
                assert check.status == SERVING
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary("/constraintd.runner.v1.GenerationService/GetModelInfo")(b"", timeout=5)
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            arguments = ["--ca", str(outside.cert), "--prompt", "Once", "--max-tokens", "5"]
            for token_file, status in ((tmp_path / "anns.token", 0), (runners_token, 1)):
                if status == 0:
                    token_file.write_text(token)
                command = [sys.executable, "-m", "constraintd_runner.cli", "generate", "--runner", runner.address]
                done = subprocess.run([*command, *arguments, "--token-file", str(token_file)], capture_output=True)
                assert done.returncode == status, done.stderr
            runner.end()


def test_a_runner_whose_token_the_daemon_does_not_take_says_so_to_its_operator_and_not_to_its_caller(
    model: Path, tmp_path: Path
) -> None:
    tokens, mine = tmp_path / "tokens", tmp_path / "mine"
    mine.write_text(new_token(tokens, "runner"))
    with daemon_at(tmp_path, "--tokens-file", str(tokens)):
        with runner_at(tmp_path, model, name="unknown") as stranger:
            assert stranger.process.returncode == 1
            assert "UNAUTHENTICATED" in stranger.log
            assert "Traceback" not in stranger.log
        with runner_at(tmp_path, model, "--daemon-token-file", str(mine)) as runner:
            with GenerationClient(runner.address) as client:
                few = sampler_config(max_tokens=5, min_tokens=5)
                client.generate("Once", constraint=None, sampler=few).wait()
                mine.write_text("cdt_withdrawn")
                with pytest.raises(DaemonUnavailable, match="--daemon-token-file"):
                    client.generate("Once", constraint=None, sampler=few).wait()


def test_a_caller_who_watches_the_health_does_not_keep_the_runner(
    daemon: ServedProcess, model: Path, tmp_path: Path
) -> None:
    with runner_at(tmp_path, model, "--drain-seconds", "30") as runner:
        with grpc.insecure_channel(runner.address) as channel:
            seen: list[int] = []
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())

            def read() -> None:
                with contextlib.suppress(grpc.RpcError):
                    seen.extend(answer.status for answer in watch)

            reading = threading.Thread(target=read)
            reading.start()
            while not seen:
                time.sleep(0.01)
            assert runner.end() < 4
            reading.join()
            assert seen == [SERVING, NOT_SERVING]


def test_an_unknown_setting_of_the_runner_is_refused(model: Path, tmp_path: Path) -> None:
    with ServedProcess(tmp_path, program="constraintd_runner.cli", CONSTRAINTD_RUNNER_SLOT="3") as runner:
        assert runner.process.returncode == 1
        assert "CONSTRAINTD_RUNNER_SLOT is no setting; did you mean CONSTRAINTD_RUNNER_SLOTS?" in runner.log

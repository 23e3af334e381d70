"""The listener of daemon and runner: where it may be, what it refuses, and who can't hold it up."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing

import pytest
from constraintd_runner import metrics as runner_metrics
from constraintd_runner import metrics_recording

from constraintd.metrics import recording
from constraintd.metrics import server as daemon_metrics
from constraintd.serving import metrics_listener
from constraintd.serving.metrics_listener import CannotServeMetrics, split_address

BOTH = pytest.mark.parametrize("program", [daemon_metrics, runner_metrics], ids=["daemon", "runner"])


def page(address: str, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return answer.read().decode()


@BOTH
def test_it_serves_until_it_is_closed_and_closing_twice_is_once(program):
    server = program.serve_metrics("127.0.0.1:0")
    assert server.address.startswith("127.0.0.1:")
    assert not server.address.endswith(":0")
    assert "process_cpu_seconds_total" in page(server.address)
    server.close()
    server.close()
    with pytest.raises(urllib.error.URLError):
        page(server.address)


def test_measuring_begins_and_ends_with_the_listener():
    assert recording.active is None
    with closing(daemon_metrics.serve_metrics("127.0.0.1:0")):
        assert recording.active is not None
    assert recording.active is None
    assert type(metrics_recording.active) is metrics_recording.Recording
    with closing(runner_metrics.serve_metrics("127.0.0.1:0")):
        assert type(metrics_recording.active) is not metrics_recording.Recording
    assert type(metrics_recording.active) is metrics_recording.Recording


@BOTH
@pytest.mark.parametrize(
    "address",
    ["", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:-1", "127.0.0.1:65536", "::1:9464",
     "127.0.0.1:９４", "unix:/tmp/metrics.sock", "http://127.0.0.1:9464/metrics", "[]:1", "127.0.0.1:9999999999999999"],
)  # fmt: skip
def test_what_is_no_address_is_refused_by_name(program, address):
    with pytest.raises(CannotServeMetrics) as refused:
        program.serve_metrics(address)
    assert repr(address) in str(refused.value)
    assert recording.active is None


def test_brackets_hold_an_ipv6_address():
    assert split_address("[::1]:9464") == ("::1", 9464)
    assert split_address("metrics.local:0") == ("metrics.local", 0)


@BOTH
def test_a_taken_port_is_refused_and_nothing_is_measured(program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotServeMetrics, match="another process"):
            program.serve_metrics(address)
    assert recording.active is None
    with closing(program.serve_metrics(address)):
        pass


@BOTH
@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 70, "192.0.2.1"])
def test_a_host_that_is_not_here_is_refused(program, host):
    with pytest.raises(CannotServeMetrics, match="or 0 for any"):
        program.serve_metrics(f"{host}:0")


@BOTH
def test_a_process_has_one_listener(program):
    with closing(program.serve_metrics("127.0.0.1:0")) as first:
        with pytest.raises(CannotServeMetrics, match="already"):
            program.serve_metrics("127.0.0.1:0")
        assert page(first.address)


@BOTH
def test_half_sent_and_senseless_requests_hold_nobody_up(program):
    with closing(program.serve_metrics("127.0.0.1:0")) as server:
        host, _, port = server.address.rpartition(":")
        halves = [socket.create_connection((host, int(port))) for _ in range(20)]
        for number, half in enumerate(halves):
            half.sendall([b"GET /metrics HT", b"\x16\x03\x01\xff\x00", b"GET / HTTP/1.1\r\nA: b\r\n", b""][number % 4])
        assert "process_cpu_seconds_total" in page(server.address)
        for half in halves:
            half.close()
        request = urllib.request.Request(f"http://{server.address}/metrics", data=b"x" * 1000, method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=10)
        assert refused.value.code == 405


@BOTH
def test_a_half_sent_request_ends_in_time(program, monkeypatch):
    monkeypatch.setattr(metrics_listener, "_REQUEST_SECONDS", 0.2)
    with closing(program.serve_metrics("127.0.0.1:0")) as server:
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as half:
            half.sendall(b"GET /metrics HT")
            assert half.recv(1) == b""  # the other side hung up


@pytest.mark.parametrize("modules", [["constraintd.cli", "constraintd.server.daemon"], ["constraintd_runner.server"]])
def test_without_a_listener_prometheus_is_not_imported(modules):
    program = f"import sys, json, {', '.join(modules)}; print(json.dumps(list(sys.modules)))"
    imported = json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert {"constraintd.metrics.recording", "constraintd_runner.metrics_recording"} & set(imported)
    assert [name for name in imported if name.startswith("prometheus_client")] == []

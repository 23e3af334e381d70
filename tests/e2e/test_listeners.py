"""Where a daemon and a runner listen: rights of sockets, sockets that are left or taken, and addresses of others."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from constraintd_client import ConstraintClient

from tests.served_process import ServedProcess

PLAIN = ("--store", "memory", "--no-sandbox")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_socket_is_its_owner_s_alone_unless_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for flags, mode in (((), 0o600), (("--socket-mode", "0660"), 0o660), (("--socket-mode", "777"), 0o777)):
        with ServedProcess(tmp_path, *PLAIN, "--listen", f"unix:{path}", *flags) as daemon:
            assert mode_of(path) == mode
            daemon.end()
        assert not path.exists()


@pytest.mark.parametrize("mode", ["", "rw", "0888", "-1", "01777", "0o"])
def test_what_is_no_mode_is_refused(mode: str, tmp_path: Path) -> None:
    with ServedProcess(tmp_path, *PLAIN, f"--socket-mode={mode}") as daemon:
        assert daemon.process.returncode == 2
        assert "three octal digits" in daemon.log


def test_a_socket_that_a_dead_daemon_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with ServedProcess(tmp_path, *PLAIN, "--listen", f"unix:{path}") as daemon:
        daemon.process.kill()
        daemon.process.wait()
        assert path.exists()
    with ServedProcess(tmp_path, *PLAIN, "--listen", f"unix:{path}") as daemon:
        with ConstraintClient(daemon.address) as client:
            assert client.server_info().version


def test_a_socket_at_which_somebody_answers_is_left_to_them(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with ServedProcess(tmp_path, *PLAIN, "--listen", f"unix:{path}") as daemon:
        with ServedProcess(tmp_path, *PLAIN, "--listen", f"unix:{path}") as second:
            assert second.process.returncode == 1
            assert f"{path}: a server answers there already" in second.log
        with ConstraintClient(daemon.address) as client:
            assert client.server_info().version


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with ServedProcess(tmp_path, *PLAIN, "--listen", f"unix:{path}") as daemon:
        assert daemon.process.returncode == 1
        assert "no socket is there" in daemon.log
    assert path.read_text() == "precious"


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_listener_that_others_can_reach_is_refused_by_the_name_of_the_flag_that_allows_it(
    address: str, tmp_path: Path
) -> None:
    with ServedProcess(tmp_path, *PLAIN, "--listen", address) as daemon:
        assert daemon.process.returncode == 1
        assert f"listen: {address} can be reached from other machines" in daemon.log
        assert "--insecure" in daemon.log
        assert not daemon.addresses
    with ServedProcess(tmp_path, *PLAIN, "--listen", address, "--insecure") as daemon:
        port = daemon.address.rpartition(":")[2]
        with ConstraintClient(f"localhost:{port}") as client:
            assert client.server_info().version
        assert "whoever can reach" in daemon.log


def test_a_runner_refuses_such_a_listener_too_before_it_loads_a_model(tmp_path: Path) -> None:
    flags = ("--model", "/none", "--daemon", "unix:/none", "--listen", "0.0.0.0:0")
    with ServedProcess(tmp_path, *flags, program="constraintd_runner.cli") as runner:
        assert runner.process.returncode == 1
        assert "--insecure" in runner.log


def test_a_runner_does_not_send_its_token_in_the_clear(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("cdt_x")
    flags = ("--model", "/none", "--daemon", "daemon.example:1", "--daemon-token-file", str(tmp_path / "token"))
    with ServedProcess(tmp_path, *flags, program="constraintd_runner.cli") as runner:
        assert runner.process.returncode == 1
        assert "--daemon-plaintext-token" in runner.log


def test_a_config_file_that_is_wrong_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "constraintd.toml"
    file.write_text("[limits]\nmax_sesions = 3\n")
    with ServedProcess(tmp_path, "--config", str(file)) as daemon:
        assert daemon.process.returncode == 1
        assert f"{file}: limits.max_sesions is no setting; did you mean limits.max_sessions?" in daemon.log


def test_file_environment_and_flags_make_one_daemon(tmp_path: Path) -> None:
    file = tmp_path / "constraintd.toml"
    file.write_text('store = "memory"\nlisten = ["127.0.0.1:0"]\n[limits]\nmax_sessions = 3\nmax_streams = 4\n')
    with ServedProcess(
        tmp_path, "--max-uploads", "1", CONSTRAINTD_CONFIG=str(file), CONSTRAINTD_MAX_STREAMS="5"
    ) as daemon:
        with ConstraintClient(daemon.address) as client:
            limits = client.server_info().limits
            assert (limits.max_sessions, limits.max_streams) == (3, 5)


@pytest.mark.parametrize("program", ["constraintd.cli", "constraintd_runner.cli"])
def test_config_show_is_a_config_and_keeps_secrets(program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", program, "config", "show"]
    if program == "constraintd.cli":
        command += ["--store", "redis://ann:hush@redis.example:6379/0?password=hush"]
    else:
        command += ["--model", "m", "--daemon", "d:1"]
    first = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "hush" not in first
    (tmp_path / "x.toml").write_text(first)
    command[5:] = ["--config", str(tmp_path / "x.toml")]
    second = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    strip = [line.partition("  # ")[0] for line in first.splitlines()]
    assert [line.partition("  # ")[0] for line in second.splitlines()] == strip


def test_metrics_are_served_where_they_are_asked_for_and_nothing_of_them_is_loaded_elsewhere(tmp_path: Path) -> None:
    import urllib.request

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ServedProcess(
        tmp_path, *PLAIN, "--listen", f"unix:{tmp_path}/s", "--metrics-listen", f"127.0.0.1:{port}"
    ) as daemon:
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        assert "constraintd_" in page
        daemon.end()
    with ServedProcess(tmp_path, *PLAIN, "--listen", f"unix:{tmp_path}/s", "--metrics-listen", "nowhere") as daemon:
        assert daemon.process.returncode == 1
        assert "metrics_listen" in daemon.log
    script = "import sys; import constraintd.server.daemon; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

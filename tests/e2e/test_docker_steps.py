"""The images' steps, run in folders of this machine, and what came of them: started as the images would start it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from constraintd_client import GenerationClient, regex, sampler_config
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.tiny_decoder import write_genai_folder
from tests.unit.deploy.image import Image, build_image

REPOSITORY = Path(__file__).parents[2]
DOCKER = REPOSITORY / "deploy" / "docker"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Short, since a Unix socket's path may have 107 bytes; open to the images' user."""
    made = Path(tempfile.mkdtemp(prefix="cd-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def sockets(folder: Path) -> Path:
    """The volume that daemon and runner share."""
    made = folder / "sockets"
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def daemon(folder: Path, sockets: Path) -> Image:
    (folder / "d").mkdir(mode=0o755)
    image = build_image(DOCKER / "daemon.Dockerfile", REPOSITORY, folder / "d")
    image.mount("/run/constraintd", sockets)
    return image


@pytest.fixture(scope="module")
def runner(folder: Path, sockets: Path) -> Image:
    (folder / "r").mkdir(mode=0o755)
    image = build_image(DOCKER / "runner.Dockerfile", REPOSITORY, folder / "r")
    image.mount("/run/constraintd", sockets)
    write_genai_folder(Path(image.path("/models/smollm2")), seed=3)
    return image


def test_both_images_serve_a_generation_and_write_to_nothing_but_their_volumes(
    daemon: Image, runner: Image, folder: Path, sockets: Path
) -> None:
    images = (daemon, runner)
    before = [image.files() for image in images]
    elsewhere = files_of(daemon.user)
    with daemon.process(log=folder / "daemon.log") as serving, runner.process(log=folder / "runner.log") as running:
        assert (
            said(serving, folder / "daemon.log") == f"listening on unix:{daemon.path('/run/constraintd/daemon.sock')}"
        )
        assert (
            said(running, folder / "runner.log") == f"listening on unix:{runner.path('/run/constraintd/runner.sock')}"
        )
        assert healths(f"unix:{sockets}/daemon.sock") == {"": "SERVING", "liveness": "SERVING"}
        assert healths(f"unix:{sockets}/runner.sock") == {"": "SERVING", "liveness": "SERVING"}

        with GenerationClient(f"unix:{sockets}/runner.sock") as client:
            generation = client.generate("When?", constraint=regex("20[0-9]{2}"), sampler=sampler_config(seed=1)).wait()
        assert re.fullmatch("20[0-9]{2}", generation.text)

        for process in (running, serving):
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
    assert Path(daemon.path("/var/lib/constraintd/sessions.db")).stat().st_uid == daemon.runs_as
    assert [image.files() for image in images] == before
    assert files_of(daemon.user) == elsewhere


@pytest.mark.parametrize("name", ["daemon", "runner"])
def test_every_installed_package_has_the_version_of_constraints_txt(name: str, request: pytest.FixtureRequest) -> None:
    image: Image = request.getfixturevalue(name)
    listed = dict(
        line.split("==") for line in (DOCKER / "constraints.txt").read_text().splitlines() if not line.startswith("#")
    )
    script = "from importlib.metadata import distributions as d; [print(f'{x.name}=={x.version}') for x in d()]"
    printed = subprocess.run(
        [image.path("/opt/constraintd/bin/python"), "-c", script], check=True, capture_output=True, text=True
    ).stdout
    installed = dict(line.split("==") for line in printed.split())
    assert installed.pop("constraintd") == "0.1.0"
    wanted = {plain(package): version for package, version in listed.items()}
    assert {plain(package): version for package, version in installed.items()}.items() <= wanted.items()


def test_no_tool_to_build_or_install_with_is_in_the_daemons_image(daemon: Image) -> None:
    site = next(Path(daemon.path("/opt/constraintd/lib")).glob("python3.*")) / "site-packages"
    assert not {path.name for path in site.iterdir()} & {"pip", "setuptools", "wheel", "hatchling", "grpc_tools"}


def test_a_step_that_fails_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.Dockerfile"
    path.write_text("FROM python:3.11.13-slim-bookworm\nRUN true\nRUN echo here it is >&2 && false\n")
    with pytest.raises(RuntimeError, match=r"(?s)bad\.Dockerfile:3: RUN failed.*here it is"):
        build_image(path, REPOSITORY, tmp_path)


def said(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip() or log.read_text()


def healths(address: str) -> dict[str, str]:
    """Statuses of the two services that probes ask for."""
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        names = ("", "liveness")
        answers = {name: stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10) for name in names}
    return {name: health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) for name, answer in answers.items()}


def files_of(user: int) -> set[Path]:
    """A user's files in the folders that anybody may write to."""
    found: set[Path] = set()
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        for path in Path(folder).glob("*"):
            try:
                found |= {path} if path.lstat().st_uid == user else set()
            except FileNotFoundError:  # another program's, gone meanwhile
                continue
    return found


def plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()

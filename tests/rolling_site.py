"""All that a rolling restart restarts: three daemons on one Redis behind Envoy, and two runners of one model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.envoy_process import EnvoyProcess, free_ports
from tests.redis_process import RedisProcess
from tests.replica_process import Replica
from tests.served_process import ServedProcess
from tests.tiny_decoder import write_genai_folder

_DRAIN_SECONDS = "1"


class RestartedRunner:
    """One runner at one Unix socket, ended and begun again there; its calls are logged."""

    def __init__(self, folder: Path, name: str, model: Path, daemon: str) -> None:
        self.address = f"unix:{folder}/{name}.sock"
        self._folder = folder / name
        self._folder.mkdir()
        self._flags = ["--listen", self.address, "--model", str(model), "--daemon", daemon, "--threads", "1"]
        # Less than most generations take: they are handed over, and not merely waited for.
        self._flags += ["--drain-seconds", "0.3", "--log-calls"]
        self._process: ServedProcess | None = None

    def start(self) -> None:
        """Returns when it listens. Raises AssertionError with its log if it ends instead."""
        self._process = ServedProcess(self._folder, *self._flags, program="constraintd_runner.cli")
        assert self._process.addresses == [self.address], self._process.log

    def restart(self) -> None:
        """SIGTERM, its end, and another one."""
        assert self._process is not None
        self._process.end()
        self.start()

    def kill(self) -> None:
        """If it still runs."""
        if self._process is not None:
            self._process.__exit__(None, None, None)

    @property
    def log(self) -> str:
        """Of all its lives."""
        return "".join(path.read_text() for path in sorted(self._folder.iterdir()))

    @property
    def moves(self) -> int:
        """How often a daemon told it that it drains."""
        return self.log.count("the daemon is about to stop")

    @property
    def resumes(self) -> int:
        """How many generations it was asked to go on with."""
        return len(re.findall(r"\bResumeGeneration\b", self.log))


@dataclass(frozen=True, slots=True)
class Site:
    """Where clients go to `runners`, these to `envoy`, and that to `replicas`."""

    replicas: list[Replica]
    envoy: EnvoyProcess
    runners: list[RestartedRunner]

    def restart_replica(self, number: int) -> None:
        """SIGTERM, its end, another one, and Envoy sends calls there again."""
        replica = self.replicas[number]
        replica.stop()
        replica.wait_stopped()
        replica.start()
        self.envoy.wait_healthy([each.address for each in self.replicas])

    def logs(self) -> str:
        """Of all daemons and runners."""
        return "".join(each.log for each in [*self.replicas, *self.runners])


@contextmanager
def running_site(folder: Path) -> Iterator[Site]:
    """All of it, ready."""
    redis = RedisProcess(folder, synced=False)
    with ExitStack() as stack:
        stack.callback(redis.kill)
        redis.start()
        drain = ("--drain-seconds", _DRAIN_SECONDS)
        replicas = [stack.enter_context(Replica(folder, port, redis.url, *drain)) for port in free_ports(3)]
        for replica in replicas:
            replica.wait_ready()
        envoy = stack.enter_context(EnvoyProcess(folder, [each.address for each in replicas]))
        envoy.wait_healthy([each.address for each in replicas])
        model = write_genai_folder(folder / "model")
        runners = [RestartedRunner(folder, name, model, envoy.address) for name in ("a", "b")]
        for runner in runners:
            stack.callback(runner.kill)
            runner.start()
        yield Site(replicas, envoy, runners)

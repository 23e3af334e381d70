"""Clients of a rolling restart, in Go and TypeScript: processes that generate without a pause, and what each heard."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_CLIENTS: Final = Path(__file__).parent.parent / "clients"
_BUILD_SECONDS: Final = 280
_END_SECONDS: Final = 60.0

GO: Final = (str(_CLIENTS / "go" / "build" / "load"),)
TYPESCRIPT: Final = ("node", str(_CLIENTS / "typescript" / "build" / "toy" / "load.js"))


def build_clients() -> None:
    """Compiles both programs. Raises RuntimeError with what Go or npm said."""
    _run(["go", "build", "-o", "build/load", "./cmd/load"], _CLIENTS / "go")
    _run(["make", "--no-print-directory", "build"], _CLIENTS / "typescript")


@dataclass(slots=True)
class Heard:
    """One generation, as its client was told of it."""

    request: int
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    reason: str = ""
    counted: int = -1
    """Of tokens, by the runner's own account."""


class LoadClient:
    """One process. What it prints is read by a thread; `generations` and `failures` are for others to read."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.generations: list[Heard] = []
        """Begun, in order; those before the last one have ended."""
        self.ended = 0
        self.failures: list[str] = []
        self.longest_silence = 0.0
        """Seconds between two events."""
        self._log = log
        self._heard: float | None = None
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        self._reader = threading.Thread(target=self._read, name=f"reader of {name}", daemon=True)
        self._reader.start()

    def end(self) -> None:
        """Lets it finish the generation under way. Raises AssertionError if it can't."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end; {self.describe()}") from None
        self._reader.join(timeout=10)
        assert status == 0, f"{self.name} ended with status {status}; {self.describe()}"

    def kill(self) -> None:
        """If it still runs."""
        self._process.kill()
        self._process.wait()

    def describe(self) -> str:
        """What it has come to, and said on stderr."""
        return f"{self.ended} generations ended, failures {self.failures}; its log: {self._log.read_text()[-2000:]}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            now = time.monotonic()
            if self._heard is not None:
                self.longest_silence = max(self.longest_silence, now - self._heard)
            self._heard = now
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, IndexError) as error:
                self.failures.append(f"an event that is out of place: {line!r}: {error!r}")

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "started":
                if len(self.generations) > self.ended:
                    raise ValueError("the generation before has not finished")
                self.generations.append(Heard(event["request"]))
            case "delta":
                self._current().tokens += event["tokens"]
                self._current().text += event["text"]
            case "finished":
                heard = self._current()
                heard.reason, heard.counted = event["reason"], event["tokens"]
                self.ended += 1
            case _:
                self.failures.append(f"request {event['request']}: {event['error']}")

    def _current(self) -> Heard:
        """The generation under way. Raises ValueError if there is none."""
        if len(self.generations) != self.ended + 1:
            raise ValueError("no generation has started")
        return self.generations[-1]


@contextmanager
def load(folder: Path, requests: Path, runners: Sequence[str]) -> Iterator[list[LoadClient]]:
    """Eight clients, four of each language, half of which begin at each runner, each with another of the requests."""
    with ExitStack() as stack:
        clients = []
        for number in range(8):
            language, program = (("go", GO), ("typescript", TYPESCRIPT))[number % 2]
            targets = runners if number % 4 < 2 else list(reversed(runners))
            command = [*program, "--runner", ",".join(targets), "--requests", str(requests)]
            command += ["--first", str(number)]
            client = LoadClient(f"{language} {number}", command, folder / f"client-{number}.log")
            stack.callback(client.kill)
            clients.append(client)
        yield clients


def _run(command: Sequence[str], folder: Path) -> None:
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_BUILD_SECONDS)
    if built.returncode:
        raise RuntimeError(f"{' '.join(command)} in {folder.name} failed:\n{(built.stdout + built.stderr)[-3000:]}")

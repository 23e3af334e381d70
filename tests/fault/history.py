"""What the clients of a session asked, when, and what they were told: the record that the model is held against.

Every process writes a file of its own, a line before each call and a line after it, so that a call whose process was
killed is there without an outcome. Times are CLOCK_MONOTONIC, in ns, and so comparable between processes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as far as the model looks at it. `kind`: open, step, resume, update, rollback, turn, get, close."""

    kind: str
    epoch: int = 0
    position: int = 0
    tokens: tuple[int, ...] = ()
    request_id: str = ""
    to_position: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the daemon said. None: that kind of call doesn't say it. `directive` is a digest of the whole Directive."""

    epoch: int | None = None
    position: int | None = None
    directive: str | None = None
    tokens: tuple[int, ...] | None = None
    begins: tuple[int, ...] | None = None
    """Where the turns begin."""
    finished: bool | None = None
    config: str | None = None
    """A digest of the sampler config in force."""
    closed: bool | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that says for sure that nothing was changed."""

    reason: str
    expected_position: int | None = None
    logged_tokens: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """A call and its outcome; None: nobody knows whether it took effect, or when it still will."""

    session: str
    client: str
    call: Call
    invoked: int
    returned: int = 0
    outcome: Answer | Refusal | None = None

    def __str__(self) -> str:
        return f"{self.client}: {_short(self.call)} -> {_short(self.outcome) if self.outcome else 'unknown'}"


class Recorder:
    """Writes one process's file. Safe to use from many threads."""

    def __init__(self, path: Path, client: str) -> None:
        self._file = path.open("ab", buffering=0)
        self._client = client
        self._count = 0
        self._lock = threading.Lock()

    def invoke(self, session: str, call: Call, client: str = "") -> int:
        """To be written before the call is sent; gives the number to tell the outcome by."""
        with self._lock:
            self._count += 1
            number = self._count
            name = self._client + client
            self._write({"n": number, "t": time.monotonic_ns(), "s": session, "c": name, "call": asdict(call)})
        return number

    def returned(self, number: int, outcome: Answer | Refusal) -> None:
        """To be written once the outcome is known, if it ever is."""
        kind = "answer" if isinstance(outcome, Answer) else "refusal"
        with self._lock:
            self._write({"n": number, "t": time.monotonic_ns(), kind: asdict(outcome)})

    def begun(self, session: int) -> None:
        """To be written before the session of that number is opened."""
        with self._lock:
            self._write({"begun": session})

    def ended(self, session: int) -> None:
        """The session of that number has reached its end, as its client saw it."""
        with self._lock:
            self._write({"ended": session})

    def close(self) -> None:
        """Ends the file."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        # One write a line, straight to the kernel: a kill between two lines loses neither.
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


def read_histories(paths: Iterable[Path]) -> dict[str, list[Operation]]:
    """Every session's operations, from all files, by time of invocation."""
    histories: dict[str, list[Operation]] = {}
    for path in paths:
        lines = _lines(path)
        outcomes = {line["n"]: line for line in lines if "answer" in line or "refusal" in line}
        for line in lines:
            if "call" in line:
                after = outcomes.get(line["n"])
                operation = Operation(
                    line["s"],
                    line["c"],
                    Call(**_tuples(line["call"])),
                    line["t"],
                    after["t"] if after else 0,
                    _outcome(after) if after else None,
                )
                histories.setdefault(operation.session, []).append(operation)
    for history in histories.values():
        history.sort(key=lambda operation: operation.invoked)
    return histories


def read_marks(paths: Iterable[Path]) -> tuple[set[int], set[int]]:
    """Numbers of the sessions that have begun, and of those that have ended, according to these files."""
    lines = [line for path in paths for line in _lines(path)]
    return ({line["begun"] for line in lines if "begun" in line}, {line["ended"] for line in lines if "ended" in line})


def _lines(path: Path) -> list[dict[str, Any]]:
    whole = path.read_bytes().split(b"\n")[:-1]  # without what a kill has cut off
    return [json.loads(line) for line in whole]


def _outcome(line: dict[str, Any]) -> Answer | Refusal:
    if "answer" in line:
        return Answer(**_tuples(line["answer"]))
    return Refusal(**_tuples(line["refusal"]))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _short(value: Call | Answer | Refusal) -> str:
    fields = asdict(value)
    name = str(fields.pop("kind", fields.pop("reason", "answered")))
    shown = [
        f"{key}={value:#x}" if key == "epoch" else f"{key}={value}"
        for key, value in fields.items()
        if value not in (None, (), "", 0) or key == "position"
    ]
    return f"{name}({', '.join(shown)})"

"""What a case's script talks to one adapter with."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.daemon_process import EOG, SECOND_EOG, TOOL, WIDTH

from .adapter import Adapter
from .expect import CaseFailed, fields
from .places import Places

BYTE_TOKENS: Final[Mapping[str, Any]] = {
    "tokens": [*(f"{value:02x}" for value in range(256)), *[None] * 4, b"<tool>".hex(), b"ab".hex(), b"a".hex()],
    "special": {EOG: "</s>", TOOL: "<tool>", SECOND_EOG: "<|end|>"},
    "eog_ids": [EOG, SECOND_EOG],
    "logits_width": WIDTH,
}
"""The table of tests/daemon_process.py, as the op `register` takes it."""

UNCONSTRAINED: Final[Mapping[str, Any]] = {"unconstrained": {}}


def base64_text(text: str | bytes) -> str:
    """A protocol's `bytes` in proto3 JSON."""
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def regex(pattern: str) -> dict[str, Any]:
    """A constraint in proto3 JSON."""
    return {"grammar": {"regex": base64_text(pattern)}}


def json_schema(schema: str) -> dict[str, Any]:
    """A constraint in proto3 JSON."""
    return {"grammar": {"jsonSchema": base64_text(schema)}}


class Talk:
    """One case with one adapter."""

    def __init__(self, adapter: Adapter, places: Places) -> None:
        self._adapter = adapter
        self.places = places
        self.vocabulary_id = ""
        self.ids: dict[str, str] = {}
        """Sessions' ids, by their names."""

    # --- one line ---

    def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """The answer as it is."""
        return self._adapter.ask({"op": op, **request})

    def ok(self, op: str, **request: Any) -> dict[str, Any]:
        """The answer to what must succeed."""
        answer = self.ask(op, **request)
        if "error" in answer:
            raise CaseFailed(f"{op} failed: {answer['error']}")
        found: dict[str, Any] = answer["ok"]
        return found

    def refused(self, wanted: Mapping[str, Any], op: str, **request: Any) -> dict[str, Any]:
        """The error of what must fail, which has the wanted fields."""
        answer = self.ask(op, **request)
        if "ok" in answer:
            raise CaseFailed(f"{op} succeeded, expected {dict(wanted)}: {answer['ok']}")
        fields(answer["error"], {"kind": "refused", **wanted}, f"the error of {op}")
        error: dict[str, Any] = answer["error"]
        return error

    # --- the usual beginnings ---

    def begin(self, address: str | None = None, **connect: Any) -> None:
        """Connects to a daemon, the one that stays by default, and registers the byte vocabulary."""
        self.ok("connect", targets=[address or self.places.daemon], **connect)
        client = connect.get("client", "main")
        self.vocabulary_id = self.ok("register", client=client, **BYTE_TOKENS)["vocabulary_id"]

    def open(self, name: str, constraint: Mapping[str, Any], **request: Any) -> dict[str, Any]:
        """Opens a session of that name, under a new id unless one is given."""
        self.ids[name] = request.setdefault("session_id", secrets.token_hex(16))
        request.setdefault("vocabulary_id", self.vocabulary_id)
        return self.ok("open", session=name, constraint=constraint, **request)

    def stream(self, name: str = "stream") -> None:
        """Opens a Decode stream for the byte vocabulary."""
        self.ok("stream", stream=name, vocabulary_id=self.vocabulary_id, logits_width=WIDTH)

    # --- steps ---

    def step(self, session: str, tokens: Sequence[int]) -> dict[str, Any]:
        """A step by a call of its own, with 1 bit of surprisal a token."""
        return self.ok("step", session=session, tokens=list(tokens), surprisals=[1.0] * len(tokens))

    def write(self, session: str, text: bytes) -> dict[str, Any]:
        """A step for each byte; gives the last answer."""
        answer: dict[str, Any] = {}
        for byte in text:
            answer = self.step(session, [byte])
        return answer

    def send(self, steps: Mapping[str, Sequence[int]], stream: str = "stream") -> None:
        """Steps of several sessions in one batch."""
        self.ok("send", stream=stream, steps=[report(name, tokens) for name, tokens in steps.items()])

    def send_each(self, sessions: Sequence[str], tokens: Sequence[int]) -> None:
        """The same tokens for each of these sessions, in one batch."""
        self.send(dict.fromkeys(sessions, tokens))

    def take(self, session: str, *, stream: str = "stream", timeout_ms: int = 30_000) -> dict[str, Any]:
        """The answer to a step that was sent."""
        return self.ok("take", stream=stream, session=session, timeout_ms=timeout_ms)

    def through(self, session: str, tokens: Sequence[int], stream: str = "stream") -> dict[str, Any]:
        """A step through a stream."""
        self.send({session: tokens}, stream)
        return self.take(session, stream=stream)

    def refused_step(self, wanted: Mapping[str, Any], session: str, tokens: Sequence[int], **request: Any) -> None:
        """A step that is refused by the unary call, with its status, and by the stream, which stands."""
        surprisals = request.get("surprisals", [1.0] * len(tokens))
        self.refused(wanted, "step", session=session, tokens=list(tokens), surprisals=surprisals)
        self.ok("send", stream="stream", steps=[{"session": session, "tokens": list(tokens), "surprisals": surprisals}])
        in_stream = {key: value for key, value in wanted.items() if key != "code"}
        self.refused(in_stream, "take", stream="stream", session=session, timeout_ms=30_000)


def report(session: str, tokens: Sequence[int]) -> dict[str, Any]:
    """One session's part of a batch, with 1 bit of surprisal a token."""
    return {"session": session, "tokens": list(tokens), "surprisals": [1.0] * len(tokens)}


def wait_until(seconds: float, holds: Any, what: str) -> None:
    """Asks until it holds. Raises CaseFailed if it does not in time."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise CaseFailed(f"within {seconds} s {what}")
        time.sleep(0.02)

"""The toy runner in Python: a made-up model, and all sessions of a file over one Decode stream, through restarts.

    python -m tests.python_toy --daemon unix:/tmp/constraintd.sock --vocabulary-tokens byte --sessions FILE.json

Prints one JSON line a session: its tokens, and the finish's reason or "dead_end". `clients/go/cmd/toy` and
`clients/typescript/toy` are the same in their languages.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
from constraintd_client import ConstraintClient, DecodeStream, SessionHandle
from constraintd_client.backoff import Backoff
from constraintd_client.errors import (
    ConstraintdError,
    UnknownSession,
)
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.sampler_config import chain_of
from google.protobuf.json_format import ParseDict
from numpy.typing import NDArray

from constraintd.v1 import sampler_pb2, session_pb2
from tests.daemon_process import BYTE_TABLE, EOG, SECOND_EOG, WIDTH

T = TypeVar("T")

_WORD: Final = 2**64 - 1
_IDS: Final = np.arange(WIDTH, dtype=np.uint64)


class MadeUpModel:
    """A model that is a hash of all tokens before (FNV-1a, 64 bits, over their little-endian uint32 bytes)."""

    def __init__(self) -> None:
        self._hash = 0xCBF29CE484222325

    def feed(self, tokens: Sequence[int]) -> None:
        """Takes tokens in."""
        for byte in np.asarray(tokens, dtype="<u4").tobytes():
            self._hash = ((self._hash ^ byte) * 0x100000001B3) & _WORD

    def logits(self) -> NDArray[np.float32]:
        """The next row: [WIDTH] float32, in [-6, 6)."""
        z = np.uint64(self._hash) + _IDS + np.uint64(0x9E3779B97F4A7C15)  # splitmix64; arrays wrap around
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        return ((z >> np.uint64(40)).astype(np.float64) / 2**24 * 12.0 - 6.0).astype(np.float32)


@dataclass(slots=True)
class Seat:
    """One session that is being driven."""

    session: SessionHandle
    picker: MaskedPicker
    model: MadeUpModel
    tokens: list[int] = field(default_factory=list)
    report: tuple[SessionHandle, list[int], list[float]] | None = None

    def pick(self) -> tuple[SessionHandle, list[int], list[float]]:
        """The next token, as the Step that says so."""
        choice = self.picker.pick(self.model.logits(), self.session.directive)
        self.report = self.session, [choice.token], [choice.surprisal]
        return self.report

    def took(self) -> None:
        """Its answer is here."""
        assert self.report is not None
        self.tokens += self.report[1]
        self.model.feed(self.report[1])

    def outcome(self) -> dict[str, Any]:
        """What it came to."""
        finish = self.session.directive.finish
        reason = "dead_end" if finish is None else finish.reason
        return {"session_id": self.session.session_id.hex(), "tokens": self.tokens, "finish": reason}


class Toy:
    """Drives sessions at one daemon that may be away for `patience` seconds at a time."""

    def __init__(self, client: ConstraintClient, patience: float) -> None:
        self._client = client
        self._patience = patience

    def run(self, entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """All of them at once, each to its end."""
        info = self._ask(
            lambda: self._client.register_vocabulary(
                "token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG]
            )
        )
        seats = [self._sit(info.vocabulary_id, entry) for entry in entries]
        with self._client.decode_stream(info.vocabulary_id, WIDTH) as stream:
            while live := [seat for seat in seats if seat.session.directive.mask is not None]:
                stream.send([seat.pick() for seat in live])
                for seat in live:
                    self._take(stream, seat)
                    seat.took()
        return [seat.outcome() for seat in seats]

    def _sit(self, vocabulary_id: str, entry: dict[str, Any]) -> Seat:
        """Takes a session over, or opens it where there is none."""
        session_id = bytes.fromhex(entry["session_id"])
        sampler = ParseDict(entry.get("sampler", {}), sampler_pb2.SamplerConfig())
        if "max_tokens" in entry:
            given = sampler.max_tokens if sampler.HasField("max_tokens") else entry["max_tokens"]
            sampler.max_tokens = min(given, entry["max_tokens"])
        constraint = ParseDict(entry["constraint"], session_pb2.Constraint())
        prompt = entry.get("prompt_tokens", [])

        def taken_up() -> tuple[SessionHandle, list[int], tuple[int, ...]]:
            try:
                resumed = self._client.resume_session(session_id)
            except UnknownSession:
                opened = self._client.open_session(
                    vocabulary_id, constraint, sampler=sampler, prompt_tokens=prompt, session_id=session_id
                )
                return opened, prompt, ()
            return resumed.session, resumed.model_input(), resumed.tokens

        session, fed, tokens = self._ask(taken_up)
        assert session.sampler is not None
        seat = Seat(session, MaskedPicker(chain_of(session.sampler)), MadeUpModel(), list(tokens))
        seat.model.feed(fed)
        return seat

    def _take(self, stream: DecodeStream, seat: Seat) -> None:
        """One session's answer. What passes by itself is sent again, on a new stream where that one broke."""

        def answer() -> None:
            try:
                stream.take(seat.session, self._patience)
            except ConstraintdError as error:
                if not error.retryable:
                    raise
                if stream.broken is not None:
                    stream.reconnect()
                elif seat.report is not None:
                    stream.send([seat.report])
                raise

        self._ask(answer)

    def _ask(self, call: Callable[[], T]) -> T:
        backoff, until = Backoff(), time.monotonic() + self._patience
        while True:
            try:
                return call()
            except ConstraintdError as error:
                if not error.retryable or time.monotonic() > until:
                    raise
                time.sleep(backoff.next_pause())


def main() -> int:
    """The program; its exit status is 1 if a session failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.python_toy", description="A runner with a made-up model.")
    parser.add_argument("--daemon", required=True, metavar="TARGET")
    parser.add_argument("--vocabulary-tokens", choices=["byte"], default="byte")
    parser.add_argument("--sessions", required=True, metavar="FILE")
    parser.add_argument("--one-stream", action="store_true", help="which is the only way")
    parser.add_argument("--patience", type=float, default=60.0, metavar="SECONDS")
    options = parser.parse_args()
    with open(options.sessions, encoding="utf-8") as file:
        entries = json.load(file)
    with ConstraintClient(options.daemon.split(",")) as client:
        try:
            outcomes = Toy(client, options.patience).run(entries)
        except ConstraintdError as error:
            print(f"python_toy: {error}", file=sys.stderr)
            return 1
    for outcome in outcomes:
        print(json.dumps(outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether a recorded history can be what a session went through, one call after the other.

A call takes effect at one instant between its sending and its answer; one without an outcome at any instant after its
sending, or never. The search takes the calls in every order that these times allow and asks the model what each would
have been told (Wing & Gong 1993), remembering where it has been (Lowe 2017). One session has one writer at a time and
a few takeovers, so it is nearly always a straight line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.fault.history import Answer, Call, Operation, Refusal
from tests.fault.model import Place, Text, applied

_MOST_PLACES = 200_000


@dataclass(frozen=True, slots=True)
class Violation:
    """A history that no order of its calls explains. `stuck_at`: the calls at which the longest explanation ends."""

    session: str
    explained: int
    of: int
    place: Place | None
    stuck_at: tuple[Operation, ...]

    def __str__(self) -> str:
        lines = [f"session {self.session}: {self.explained} of {self.of} outcomes explained; then, from {self.place}:"]
        return "\n    ".join([*lines, *map(str, self.stuck_at)])


def explain(history: Sequence[Operation], text: Text) -> Violation | None:
    """None if the history conforms to the model. Raises RuntimeError where that is undecided after a long search."""
    known = [operation for operation in history if operation.outcome is not None]
    doubtful = [operation for operation in history if operation.outcome is None]
    everything = (1 << len(known)) - 1
    best: tuple[int, int, Place | None] = (-1, 0, None)
    # (known calls done, doubtful calls that took effect, place)
    paths: list[tuple[int, int, Place | None]] = [(0, 0, None)]
    been: dict[tuple[int, Place | None], list[int]] = {}
    visited = 0
    while paths:
        done, used, place = paths.pop()
        if done == everything:
            return None
        seen = been.setdefault((done, place), [])
        if any(before & used == before for before in seen):
            continue  # was here with no more of the doubtful ones spent
        seen.append(used)
        visited += 1
        if visited > _MOST_PLACES:
            raise RuntimeError(f"undecided after {visited} places: {len(known)} outcomes, {len(doubtful)} doubtful")
        if done.bit_count() > best[0]:
            best = (done.bit_count(), done, place)
        until = _until(known, done)
        tried: set[Call] = set()
        for index, operation in enumerate(doubtful):
            # Of equal ones the earliest: whatever a later one explains, it explains.
            if not used >> index & 1 and operation.invoked < until and operation.call not in tried:
                tried.add(operation.call)
                _, behind = applied(place, operation.call, text, -1 - index)
                if behind != place:
                    paths.append((done, used | 1 << index, behind))
        for index in reversed(range(len(known))):
            if not done >> index & 1 and known[index].invoked < until:
                agreed, behind = _told(place, known[index], text)
                if agreed:
                    paths.append((done | 1 << index, used, behind))
    until = _until(known, best[1])
    stuck_at = [op for i, op in enumerate(known) if not best[1] >> i & 1 and op.invoked < until]
    return Violation(history[0].session, best[0], len(known), best[2], tuple(stuck_at))


def _until(known: Sequence[Operation], done: int) -> int:
    """The next call to take effect is one that was sent before this time."""
    return min(operation.returned for index, operation in enumerate(known) if not done >> index & 1)


def _told(place: Place | None, operation: Operation, text: Text) -> tuple[bool, Place | None]:
    """Whether the call's outcome is what the model says at this place, and the place behind it."""
    outcome = operation.outcome
    assert outcome is not None
    told = outcome.epoch if isinstance(outcome, Answer) else None
    expected, behind = applied(place, operation.call, text, 0 if told is None else told)
    if isinstance(outcome, Refusal) or isinstance(expected, Refusal):
        return _agrees_refusal(expected, outcome), behind
    if told is not None and behind is not None and expected.epoch is not None and expected.epoch < 0:
        # A repeat tells at last what the first answer, which nobody got, had said.
        behind = _learnt(behind, expected.epoch, told)
        expected = replace(expected, epoch=told)
    return expected == outcome, behind


def _agrees_refusal(expected: Answer | Refusal, outcome: Answer | Refusal) -> bool:
    if not (isinstance(expected, Refusal) and isinstance(outcome, Refusal)):
        return False
    # Inside a unary call's error these may be left out; where they are given they are right.
    return (
        expected.reason == outcome.reason
        and outcome.expected_position in (None, expected.expected_position)
        and outcome.logged_tokens in (None, expected.logged_tokens)
    )


def _learnt(place: Place, unseen: int, epoch: int) -> Place:
    changes = tuple(
        (request_id, replace(first, epoch=epoch) if first.epoch == unseen else first)
        for request_id, first in place.changes
    )
    return replace(place, epoch=epoch if place.epoch == unseen else place.epoch, changes=changes)

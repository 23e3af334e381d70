"""A session in plain Python: what any daemon, on any store, killed at any time, must look like to its callers.

It assumes: sessions are seeded, so their text is known beforehand (`Text`, from a run that nobody disturbed); updates
change nothing but the epoch; rollbacks go to before a turn's end; callers send only tokens that are legal. It knows no
masks and no sampler: that a Directive at a place is byte for byte the undisturbed run's one says all of that at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.fault.history import Answer, Call, Refusal


@dataclass(frozen=True, slots=True)
class Text:
    """What a session comes to."""

    tokens: tuple[int, ...]
    ends: tuple[int, ...]
    """Where each turn ends."""
    directives: Mapping[tuple[int, int], str]
    """(turn, position) -> digest of the Directive there."""
    config: str = ""
    """Digest of the sampler config."""


@dataclass(frozen=True, slots=True)
class Place:
    """A session as it stands."""

    epoch: int
    """Below 0: one that no caller has been told yet."""
    tokens: tuple[int, ...] = ()
    begins: tuple[int, ...] = (0,)
    last: int | None = None
    """Where the last applied step began, if nothing came between."""
    changes: tuple[tuple[str, Answer], ...] = ()
    """Request id -> first answer."""


def applied(place: Place | None, call: Call, text: Text, fresh: int) -> tuple[Answer | Refusal, Place | None]:
    """What the call is told at this place (None: no such session), and the place behind it. `fresh`: a new epoch."""
    match call.kind:
        case "open":
            place = place or Place(fresh)
            return _said(place, text), place
        case "close":
            return Answer(closed=place is not None), None
    if place is None:
        return Refusal("UNKNOWN_SESSION"), None
    match call.kind:
        case "get":
            return Answer(tokens=place.tokens, finished=_finished(place, text)), place
        case "resume":
            place = replace(place, epoch=fresh)
            return replace(_said(place, text), tokens=place.tokens, begins=place.begins), place
        case "step":
            return _stepped(place, call, text)
    for request_id, answer in place.changes:
        if request_id == call.request_id:
            return answer, place
    if call.epoch != place.epoch:
        return Refusal("STALE_EPOCH"), place
    if call.position != len(place.tokens):
        kind = "POSITION_GAP" if call.position > len(place.tokens) else "STALE_POSITION"
        return Refusal(kind, expected_position=len(place.tokens)), place
    place = replace(place, epoch=fresh, last=None)
    if call.kind == "turn":
        place = replace(place, begins=(*place.begins, len(place.tokens)))
    if call.kind == "rollback":
        begins = tuple(begin for begin in place.begins if begin <= call.to_position)
        place = replace(place, tokens=place.tokens[: call.to_position], begins=begins)
    answer = _said(place, text)
    return answer, replace(place, changes=(*place.changes, (call.request_id, answer)))


def _stepped(place: Place, call: Call, text: Text) -> tuple[Answer | Refusal, Place]:
    here = len(place.tokens)
    if call.epoch != place.epoch:
        return Refusal("STALE_EPOCH"), place
    if call.position > here:
        return Refusal("POSITION_GAP", expected_position=here), place
    if call.position == here:
        if _finished(place, text):
            return Refusal("SESSION_FINISHED"), place
        place = replace(place, tokens=place.tokens + call.tokens, last=here)
    elif call.position != place.last:
        return Refusal("STALE_POSITION", expected_position=here), place
    elif call.tokens != place.tokens[place.last :]:
        return Refusal("POSITION_CONFLICT", logged_tokens=place.tokens[place.last :]), place
    return replace(_said(place, text), epoch=None, config=None), place


def _said(place: Place, text: Text) -> Answer:
    directive = text.directives.get((len(place.begins) - 1, len(place.tokens)), "none")
    return Answer(place.epoch, len(place.tokens), directive, finished=_finished(place, text), config=text.config)


def _finished(place: Place, text: Text) -> bool:
    return len(place.tokens) >= text.ends[len(place.begins) - 1]

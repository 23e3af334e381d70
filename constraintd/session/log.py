"""A session's log as it stands: what its events come to, in columns.

A rollback takes what it undoes out of the columns, so they hold what has happened as far as anybody can tell.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from constraintd import failpoints
from constraintd.errors import ReplayDiverged
from constraintd.sampler.finish import Finish
from constraintd.sampler.state import SamplerState
from constraintd.session.events import (
    Accepted,
    Event,
    Fed,
    Finished,
    Opened,
    Reconfigured,
    Request,
    SessionSettings,
    Truncated,
    Turned,
)
from constraintd.session.passes import Passes

_REMEMBERED_REQUESTS = 64


@dataclass(frozen=True, slots=True)
class Mark:
    """What changed before the token at `position`. `prompt` is None where the turn goes on."""

    position: int
    settings: SessionSettings
    seed: int
    prompt: tuple[int, ...] | None = None


class Log:
    """One session's history. Changed by `apply`; `step` and `extend` are `apply` for the plainest steps, in bulk."""

    __slots__ = ("finish", "last_step", "marks", "passes", "prompted", "requests", "surprisals", "tokens", "version")

    def __init__(self) -> None:
        self.tokens = array("I")
        self.surprisals = array("f")  # bits, as reported
        self.marks: list[Mark] = []  # by position; the first is the opening
        self.prompted = 0  # tokens of all prompts
        self.passes = Passes()
        self.last_step: int | None = None  # where the last applied step began, if nothing came between
        self.finish: Finish | None = None
        self.version = 0  # events so far
        # The latest changes by their request ids, each with the version that it led to.
        self.requests: OrderedDict[bytes, tuple[Request, int]] = OrderedDict()

    def apply(self, event: Event) -> None:
        """Takes an event that has been checked."""
        self.version += 1
        match event:
            case Opened(settings, prompt, seed) | Turned(settings, prompt, seed):
                self._mark(Mark(self.position, settings, seed, prompt))
            case Reconfigured(settings, seed):
                self._mark(Mark(self.position, settings, seed))
            case Accepted(tokens, surprisals, passes):
                self.passes.report(passes, self.input_length())
                self.last_step = self.position
                self.tokens.extend(tokens)
                self.surprisals.extend(surprisals)
            case Truncated(position, seed):
                self._truncate(position, seed)
            case Finished(finish):
                self.finish = finish
            case Fed(passes):
                self.passes = Passes(passes)
        if isinstance(event, Truncated | Reconfigured | Turned) and event.request is not None:
            self.requests[event.request.request_id] = (event.request, self.version)
            if len(self.requests) > _REMEMBERED_REQUESTS:
                self.requests.popitem(last=False)

    def step(self, token: int, surprisal: float, one_pass: bool) -> bool:
        """Takes a step of one token behind one pass over one token, or behind none; False if that pass is not all that
        was due, and nothing is taken.
        """
        passes = self.passes
        if one_pass:
            if passes.fed + 1 != self.input_length():
                return False
            passes.lengths.append(1)
            passes.fed += 1
        elif passes.fed:
            passes.cut(0)
        self.version += 1
        self.last_step = len(self.tokens)
        self.tokens.append(token)
        self.surprisals.append(surprisal)
        return True

    def extend(self, tokens: NDArray[np.uint32], surprisals: NDArray[np.float32], *, one_pass: bool) -> None:
        """Takes steps of one token each that come behind another such one.

        `one_pass`: each, that one included, reports one forward pass, over one token; else none of them reports any.
        """
        count = len(tokens)
        if not count:
            return
        self.version += count
        if one_pass:
            self.passes.lengths.extend([1] * count)
            self.passes.fed += count
        self.tokens.frombytes(tokens.tobytes())
        self.surprisals.frombytes(surprisals.tobytes())
        self.last_step = self.position - 1

    def _mark(self, mark: Mark) -> None:
        if self.marks and mark.prompt is None and mark.settings is self.marks[-1].settings:
            self._reseed(mark.position, mark.seed)
        else:
            self.marks.append(mark)
            self.prompted += len(mark.prompt or ())
        self.last_step = None
        self.finish = None

    def _truncate(self, position: int, seed: int) -> None:
        del self.tokens[position:]
        del self.surprisals[position:]
        del self.marks[bisect_right(self.marks, position, key=lambda mark: mark.position) :]
        self.prompted = sum(len(mark.prompt or ()) for mark in self.marks)
        self._reseed(position, seed)
        # The runner keeps no logits: it feeds the last token again to draw at `position`.
        self.passes.cut(min(self.passes.fed, max(0, self.input_length() - 1)))
        self.last_step = None
        self.finish = None

    def _reseed(self, position: int, seed: int) -> None:
        """Draws by `seed` from `position`, the end, on; there is one way to say it, and no mark says nothing new."""
        last = self.marks[-1]
        if last.seed == seed:
            return
        # The turn's own mark stays, so that its prompt does.
        if last.position != position or last.prompt is not None:
            self.marks.append(Mark(position, last.settings, seed))
        elif self.marks[-2].settings is last.settings and self.marks[-2].seed == seed:
            del self.marks[-1]
        else:
            self.marks[-1] = replace(last, seed=seed)

    @property
    def position(self) -> int:
        """Number of accepted tokens."""
        return len(self.tokens)

    @property
    def settings(self) -> SessionSettings:
        """Those in force."""
        return self.marks[-1].settings

    @property
    def seed(self) -> int:
        """The one in force."""
        return self.marks[-1].seed

    def at(self, position: int) -> Mark:
        """The last mark up to `position`: what is in force there."""
        return self.marks[bisect_right(self.marks, position, key=lambda mark: mark.position) - 1]

    def turns(self) -> Iterator[Mark]:
        """The turns' beginnings."""
        return (mark for mark in self.marks if mark.prompt is not None)

    def input_length(self) -> int:
        """Tokens of the model's input up to here, prompts included."""
        return len(self.tokens) + self.prompted

    def copy(self) -> Log:
        """The same history, to go on from independently."""
        return self.until(self.position, self.seed)

    def until(self, position: int, seed: int) -> Log:
        """The history up to `position`, as a log of its own that draws by `seed` from there on."""
        twin = Log()
        twin.tokens = self.tokens[:]
        twin.surprisals = self.surprisals[:]
        twin.marks, twin.prompted = self.marks[:], self.prompted
        twin.passes = self.passes.copy()
        twin.finish, twin.last_step = self.finish, self.last_step
        twin.version, twin.requests = self.version, self.requests.copy()
        if position < self.position or seed != self.seed:
            twin._truncate(position, seed)
        return twin


def fold(log: Log) -> SamplerState:
    """The state at the log's end. Raises LimitExceeded."""
    return _fold(log, SamplerState.advance_all)


def fold_checked(log: Log) -> SamplerState:
    """The same, for a log from elsewhere: raises ReplayDiverged for a token that may not come where it stands."""

    def advance(state: SamplerState, tokens: array[int], surprisals: array[float]) -> None:
        for token, surprisal in zip(tokens, surprisals, strict=True):
            _check(state, token)
            state.advance(token, surprisal)

    return _fold(log, advance)


def _fold(log: Log, advance: Callable[[SamplerState, array[int], array[float]], None]) -> SamplerState:
    opening, *later = log.marks
    state = SamplerState.start(opening.settings.sampling, opening.prompt or ())
    end = len(log.tokens) - failpoints.bug(failpoints.BUG_FOLD)
    begin = 0
    for mark in later:
        advance(state, log.tokens[begin : mark.position], log.surprisals[begin : mark.position])
        state = changed(state, mark)
        begin = mark.position
    advance(state, log.tokens[begin:end], log.surprisals[begin:end])
    return state


def _check(state: SamplerState, token: int) -> None:
    here = state.mask()
    if isinstance(here, Finish):
        raise ReplayDiverged(
            f"the log goes on after position {state.position}, where the session finishes ({here.reason.value})",
            position=state.position,
        )
    byte = token >> 3
    if not (byte < len(here.dense) and here.dense[byte] >> (token & 7) & 1):
        raise ReplayDiverged(f"token {token} at position {state.position} is refused now", position=state.position)


def changed(state: SamplerState, mark: Mark) -> SamplerState:
    """The state behind a mark. Raises LimitExceeded."""
    if mark.prompt is not None:
        return state.reset_constraints(mark.settings.sampling, mark.prompt)
    if mark.settings.sampling is state.settings:
        return state  # another seed only: draws are not state
    return SamplerState.resumed_from(state, mark.settings.sampling)

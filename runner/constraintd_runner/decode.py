"""The decode loop: continuous batching, with the daemon at work on the next masks during the forward pass.

One turn of the loop, on the one thread that owns the Decoder:

    send    Steps of the tokens just picked, so that their masks are computed while the model runs
    tell    the callers what the last turn brought; they wake while the model runs
    admit   at most one waiting generation into a free slot: prefill, first pick, its own Step
    feed    one forward pass for all picked tokens
    collect the answers; for each either the next pick, or the generation's end

An answer that is late keeps its own session out of the next passes, and nobody else's: its row of logits is kept until
the answer comes or the time limit ends that session. A token after which the end is expected (an EOG token, the last
one allowed) waits for its answer before a forward pass is spent on it.

No path leads from a missing mask to a token: a pick takes a Directive, and a session without one ends with an error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from constraintd_client import Directive
from constraintd_client.backoff import Backoff
from constraintd_client.errors import ConstraintdError
from numpy.typing import NDArray

from constraintd_runner import metrics_recording
from constraintd_runner.directives import DirectiveSource
from constraintd_runner.errors import (
    Abandoned,
    DaemonLost,
    DeadEnd,
    InternalFault,
    ModelFailure,
    RunnerError,
    Stopping,
    TakenOver,
)
from constraintd_runner.exchange import Exchange, StreamRefused
from constraintd_runner.generation import (
    Accepted,
    Ended,
    Event,
    Failed,
    Generation,
    PromptIn,
)
from constraintd_runner.line import Line
from constraintd_runner.live import Live
from constraintd_runner.metrics_recording import LoopStatistics
from constraintd_runner.metrics_source import MeasuredSource
from constraintd_runner.prefill import prefill
from constraintd_runner.sampling import BrokenLogits, NothingLeft

_log = logging.getLogger(__name__)

_LONE_WAIT_SECONDS: Final = 0.05
"""How long one `take` may block when nothing else can be done; cancels and newcomers wait as long at most."""


class SlotDecoder(Protocol):
    """What the loop needs of `constraintd_runner.model.Decoder`; see there."""

    slots: int

    def acquire(self) -> int: ...
    def prefill(self, slot: int, tokens: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]: ...
    def release(self, slot: int) -> None: ...


class DecodeLoop:
    """Runs generations on a decoder. Owns the decoder, and the source's sending and taking, from `start` to `stop`."""

    def __init__(
        self,
        decoder: SlotDecoder,
        source: DirectiveSource,
        *,
        answer_timeout: float = 30.0,
        patience: float = 0.005,
        backoff: Backoff | None = None,
    ) -> None:
        """`answer_timeout`: seconds until a session without an answer fails, broken streams included. `patience`:
        seconds that the others wait for a late answer before they go on without its session. `backoff`: the pauses
        between attempts at a new stream.
        """
        self._decoder = decoder
        self._source = source
        self._patience = patience
        self._line = Line()
        self._live: list[Live] = []
        self._fresh: list[Live] = []  # picked, and not sent yet
        self._untold: list[tuple[Generation, Event]] = []
        # No pause as long as what a Step may wait: else one that comes late in an outage would see no attempt at all.
        pauses = backoff or Backoff(cap=min(1.0, answer_timeout / 8))
        self._exchange = Exchange(MeasuredSource(source), answer_timeout=answer_timeout, backoff=pauses)
        self._thread = threading.Thread(target=self._run, name="runner-decode", daemon=True)

    def start(self) -> None:
        """Starts the loop's thread. Once."""
        metrics_recording.loop = self.statistics
        self._thread.start()

    def statistics(self) -> LoopStatistics:
        """How full it is; from any thread."""
        return LoopStatistics(self._decoder.slots, len(self._live), sum(1 for _ in self._line))

    def submit(self, generation: Generation) -> None:
        """Queues a generation; from any thread. Its session's first Directive must carry a mask. An earlier one of the
        same session ends with TakenOver.

        Raises Stopping.
        """
        self._line.join(generation)

    def stop(self) -> None:
        """Ends what still runs with Stopping, and waits for the thread. Safe to call twice."""
        self._line.stop()
        if self._thread.is_alive():
            self._thread.join()
        if metrics_recording.loop == self.statistics:
            metrics_recording.loop = None

    # --- the thread ---

    def _run(self) -> None:
        while self._receive():
            try:
                self._turn()
            except Exception:
                # A fault of ours must not leave callers waiting for events that never come.
                _log.exception("the decode loop failed; its %d generations end", len(self._live))
                self._fail_all(InternalFault("the decode loop failed; the runner's log has the trace"))
        self._receive_all()
        self._fail_all(Stopping("the runner was stopped before this generation ended; try again elsewhere"))
        for generation in self._line:
            self._turn_away(generation, Stopping("the runner is stopping; try again elsewhere"))
        self._tell()

    def _receive(self) -> bool:
        """Takes in what was submitted, and blocks if there is nothing else to do. False: stop."""
        if not self._live:
            self._tell()
            self._line.wait()
        self._receive_all()
        return not self._line.stopping

    def _receive_all(self) -> None:
        for newcomer in self._line.newcomers():
            session_id = newcomer.session.session_id
            for live in [live for live in self._live if live.generation.session.session_id == session_id]:
                self._fail(live, TakenOver("the session was resumed at this runner"))
            for other in self._line:
                if other is not newcomer and other.session.session_id == session_id:
                    self._turn_away(other, TakenOver("the session was resumed at this runner"))

    def _turn(self) -> None:
        self._send()
        self._tell()
        self._drop_cancelled()
        self._admit()
        batch = [live for live in self._live if live.token is not None and live.may_be_fed]
        if batch and not self._feed(batch):
            return
        self._collect()

    def _send(self) -> None:
        if self._fresh:
            self._exchange.send(self._fresh)
            self._fresh.clear()

    def _tell(self) -> None:
        for generation, event in self._untold:
            generation.put(event)
        self._untold.clear()

    def _drop_cancelled(self) -> None:
        for live in [live for live in self._live if live.generation.cancelled]:
            self._fail(live, Abandoned("the caller cancelled"))
        for generation in [generation for generation in self._line if generation.cancelled]:
            self._turn_away(generation, Abandoned("the caller cancelled"))

    def _admit(self) -> None:
        """One at most, so that a crowd of newcomers does not hold up those who are at work."""
        generation = self._line.next(self._live, self._decoder.slots)
        if generation is None:
            return
        live = Live(generation, self._decoder.acquire())
        self._live.append(live)
        began = time.perf_counter()
        try:
            row, live.passes = prefill(self._decoder, live.slot, generation, self._line)
        except RunnerError as error:
            self._fail(live, error)
            return
        except Exception as error:
            _log.exception("the prefill of %d tokens failed", len(generation.prompt))
            self._fail(live, ModelFailure(f"the model failed on the prompt: {error}"))
            return
        live.prefilled_at = time.perf_counter()
        live.prefill_s = live.prefilled_at - began
        metrics_recording.active.prefilled(len(generation.prompt), live.prefill_s)
        self._untold.append((generation, PromptIn()))
        self._pick(live, row)
        self._send()

    def _feed(self, batch: Sequence[Live]) -> bool:
        """One forward pass; False if it failed, which ends all who were in it."""
        tokens = [live.token for live in batch if live.token is not None]
        began = time.perf_counter()
        try:
            rows = self._decoder.decode([live.slot for live in batch], tokens)  # [len(batch), width] float32
        except Exception as error:
            _log.exception("the forward pass of %d sequences failed", len(batch))
            for live in batch:
                self._fail(live, ModelFailure(f"the model's forward pass failed: {error}"))
            return False
        metrics_recording.active.fed(len(batch), time.perf_counter() - began)
        for live, row in zip(batch, rows, strict=True):
            live.token = None
            live.row = row
            live.passes.append(1)
        return True

    def _collect(self) -> None:
        """Takes answers and picks. Who is late now is only asked in passing from then on, until the answer is there."""
        if self._ready():
            self._take_all()
        for live in self._live:
            live.late = live.asked_at is not None
            if live.row is not None and live.row.base is not None:
                live.row = live.row.copy()  # it was a view of memory that the next forward pass overwrites

    def _take_all(self) -> None:
        until = time.perf_counter() + self._patience
        lone = len(self._live) == 1
        for live in list(self._live):
            if live.over:
                continue  # ended with the stream, by a `take` just before
            if live.asked_at is not None:
                patience = 0.0 if live.late else max(0.0, until - time.perf_counter())
                self._take(live, _LONE_WAIT_SECONDS if lone else patience)
            elif live.row is not None:  # it was held back for its answer, and then fed
                self._pick(live, live.row)
        late = [live for live in self._live if live.asked_at is not None]
        if late and not lone and not any(self._can_go_on(live) for live in self._live):
            # Nothing is lost by waiting for one of them; the next turn comes back to the others.
            self._take(late[0], _LONE_WAIT_SECONDS / len(late))

    def _can_go_on(self, live: Live) -> bool:
        return live in self._fresh or (live.token is not None and live.may_be_fed)

    def _take(self, live: Live, timeout: float) -> None:
        try:
            directive = self._exchange.take(live, timeout)
        except StreamRefused as error:
            # Also those without an unanswered Step: their next one would go to the same broken stream.
            self._fail_all(error)
        except (RunnerError, ConstraintdError) as error:
            self._fail(live, error)
        else:
            if directive is not None:
                self._answer(live, directive)

    def _ready(self) -> bool:
        """Whether there is a stream; without one, those who have waited for too long end."""
        try:
            if self._exchange.ready(_LONE_WAIT_SECONDS):
                return True
        except StreamRefused as error:
            self._fail_all(error)
        for live in list(self._live):
            try:
                self._exchange.check_patience(live)
            except DaemonLost as error:
                self._fail(live, error)
        return False

    def _answer(self, live: Live, directive: Directive) -> None:
        live.directive = directive
        live.wire_bytes += directive.wire_bytes
        metrics_recording.active.answered(directive, live.waits_us[-1] / 1e6)
        self._untold.append((live.generation, Accepted(live.picked, directive.settled_bytes, live.logprobs)))
        if directive.finish is not None:
            statistics = live.statistics()
            self._drop(live)
            self._untold.append((live.generation, Ended(directive.finish, statistics)))
        elif directive.no_token_allowed is not None:
            self._fail(live, DeadEnd(directive.no_token_allowed))
        elif live.row is not None:
            self._pick(live, live.row)

    def _pick(self, live: Live, row: NDArray[np.float32]) -> None:
        began = time.perf_counter()
        try:
            choice = live.generation.picker.pick(row, live.directive)
        except BrokenLogits as error:
            self._fail(live, ModelFailure(str(error)))
        except NothingLeft as error:
            self._fail(live, DeadEnd(str(error)))
        except ConstraintdError as error:
            self._fail(live, error)
        except Exception:
            _log.exception("no token could be picked at position %d", live.directive.position)
            self._fail(live, InternalFault("no token could be picked; the runner's log has the trace"))
        else:
            live.row = None
            live.token = live.picked = choice.token
            live.surprisal = choice.surprisal
            live.logprobs = choice.logprobs
            self._fresh.append(live)
            metrics_recording.active.picked(time.perf_counter() - began)

    # --- endings ---

    def _fail_all(self, error: RunnerError) -> None:
        for live in list(self._live):
            self._fail(live, type(error)(error.message, **error.metadata))

    def _turn_away(self, generation: Generation, error: RunnerError) -> None:
        self._line.remove(generation)
        self._part(generation, stays=isinstance(error, TakenOver))
        metrics_recording.active.failed(error)
        self._untold.append((generation, Failed(error)))

    def _fail(self, live: Live, error: Exception) -> None:
        self._drop(live, stays=isinstance(error, TakenOver))
        metrics_recording.active.failed(error)
        self._untold.append((live.generation, Failed(error)))

    def _drop(self, live: Live, *, stays: bool = False) -> None:
        live.over = True
        self._live.remove(live)
        if live in self._fresh:
            self._fresh.remove(live)
        self._decoder.release(live.slot)
        self._part(live.generation, stays=stays)

    def _part(self, generation: Generation, *, stays: bool) -> None:
        """The session is closed, unless its caller may come back to it or somebody else has it now."""
        if stays or generation.resumable:
            self._source.leave_session(generation.session)
        else:
            self._source.close_session(generation.session)

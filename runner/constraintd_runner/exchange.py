"""The decode loop's exchange with the daemon: Steps go out, Directives come in, and breaks mend.

A broken stream is replaced, with growing pauses, and what was unanswered goes out on the new one; so does, alone, a
Step that the daemon's store could not take for the moment. Sending twice is safe: a Step that was applied already gets
the same answer. Who has had no answer for too long gets DaemonLost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from constraintd_client import Directive
from constraintd_client.backoff import Backoff
from constraintd_client.errors import ConstraintdError, DeadlineExceeded, Draining, StaleEpoch, StoreUnavailable

from constraintd_runner.directives import DirectiveSource, ends_stream, is_final, step_bytes
from constraintd_runner.errors import DaemonLost, TakenOver
from constraintd_runner.live import Live
from constraintd_runner.outage import Outage

_log = logging.getLogger(__name__)


class StreamRefused(DaemonLost):
    """The daemon does not take this runner's stream, and will not: all generations end."""


class Exchange:
    """Owned by the decode loop; sends and takes at the source on its thread."""

    def __init__(self, source: DirectiveSource, *, answer_timeout: float, backoff: Backoff) -> None:
        """`answer_timeout`: seconds that one Step may stay unanswered, however often it is sent."""
        self._source = source
        self._answer_timeout = answer_timeout
        self._outage = Outage(backoff)

    def send(self, picked: Sequence[Live]) -> None:
        """Reports the tokens just picked. Never waits."""
        now = time.perf_counter()
        for live in picked:
            live.asked_at = now
            passes = tuple(live.passes)
            live.passes.clear()
            live.wire_bytes += step_bytes(live.generation.session.position, live.picked, passes)
            live.report = (live.generation.session, (live.picked,), (live.surprisal,), passes)
        self._source.send([live.report for live in picked if live.report is not None])

    def take(self, live: Live, timeout: float) -> Directive | None:
        """The answer to a generation's Step; None if it isn't there within `timeout` seconds.

        Raises what ends this generation alone, or StreamRefused.
        """
        began = time.perf_counter()
        if live.resend_at is not None:
            self._send_again(live, timeout)
            return None
        try:
            directive = self._source.take(live.generation.session, timeout)
        except DeadlineExceeded:
            live.waited_s += time.perf_counter() - began
            self.check_patience(live)
            return None
        except ConstraintdError as error:
            self._refused(live, error)
            return None
        live.waits_us.append((live.waited_s + time.perf_counter() - began) * 1e6)
        live.waited_s = 0.0
        live.asked_at = live.report = None
        live.answered += 1
        live.backoff.reset()
        self._outage.over()
        return directive

    def ready(self, patience: float) -> bool:
        """Whether there is a stream to take answers from. Opens a new one when its time has come, and waits for that
        at most `patience` seconds. Raises StreamRefused.
        """
        pause = self._outage.pause(time.perf_counter())
        if pause is None:
            return True
        time.sleep(min(pause, patience))
        if pause > patience:
            return False
        self._outage.trying()
        try:
            self._source.reconnect()
        except ConstraintdError as error:
            self._broke(error)
            return False
        return True

    def check_patience(self, live: Live) -> None:
        """Raises DaemonLost for one that has had no answer for too long."""
        if live.asked_at is not None and time.perf_counter() - live.asked_at > self._answer_timeout:
            raise DaemonLost(f"no answer from the daemon within {self._answer_timeout} s")

    def _refused(self, live: Live, error: ConstraintdError) -> None:
        if ends_stream(error):
            self._broke(error)
            self.check_patience(live)
        elif isinstance(error, StoreUnavailable):
            live.resend_at = time.perf_counter() + live.backoff.next_pause()
            self.check_patience(live)
        elif isinstance(error, StaleEpoch):
            if not live.may_be_mistaken:
                raise TakenOver("another call has resumed the session, and goes on with it")
            live.may_be_mistaken = False
            live.resend_at = time.perf_counter()
        else:
            raise error

    def _send_again(self, live: Live, patience: float) -> None:
        assert live.resend_at is not None
        assert live.report is not None
        pause = max(0.0, live.resend_at - time.perf_counter())
        time.sleep(min(pause, patience))
        if pause <= patience:
            live.resend_at = None
            self._source.send([live.report])
        self.check_patience(live)

    def _broke(self, cause: ConstraintdError) -> None:
        draining = isinstance(cause, Draining)
        if self._outage.broke(time.perf_counter(), at_once=draining):
            if draining:
                _log.info("the daemon is about to stop; its last answers are read, another stream comes")
            else:
                _log.warning("no stream to the daemon (%s); trying again", cause)
        if is_final(cause):
            raise StreamRefused(f"the daemon refuses the stream: {cause.message}")
